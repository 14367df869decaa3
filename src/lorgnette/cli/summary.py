"""What was found, in a short table: for each measure its mean over heads (or explanations), and those at both ends."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING

from lorgnette.axes import HEAD, LAYER, METHOD, PER_HEAD, STACK

if TYPE_CHECKING:
    import xarray as xr
    from rich.table import Table

    from lorgnette.figures.lens_report import TextTable
    from lorgnette.results import Result

_MOST_ROWS, _FEWEST_ROWS = 36, 3  # in all, and of one lens: the sentences above must not scroll away


def summary(results: "Mapping[str, Result]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("lens", "measure", "mean", "lowest", "at", "highest", "at"):
        table.add_column(column, justify="right" if column in ("mean", "lowest", "highest") else "left")
    most = max(_FEWEST_ROWS, _MOST_ROWS // max(1, len(results)))
    for name, result in results.items():
        rows = list(_rows(result.data))
        for row in rows[:most]:
            table.add_row(escape(name), *map(escape, row))
        if len(rows) > most:
            table.add_row(escape(name), f"… and {len(rows) - most} more")
    return table


def _rows(data: "xr.Dataset") -> Iterator[tuple[str, ...]]:
    from lorgnette.figures.cells import is_measure

    for name, array in data.data_vars.items():
        over = PER_HEAD if HEAD in array.dims else (METHOD,)
        if not is_measure(array) or over[-1] not in array.dims:
            continue
        others = [dim for dim in array.dims if dim not in over]
        for place in product(*(range(array.sizes[dim]) for dim in others)):
            cells = array.isel(dict(zip(others, place, strict=True)))
            if cells.notnull().any():
                labels = [str(cells.coords[dim].item()) if dim in cells.coords else str(place) for dim in others]
                yield (" ".join([str(name), *labels]), *_numbers(cells))


def _numbers(cells: "xr.DataArray") -> tuple[str, ...]:
    flat = cells.stack(cell=cells.dims).dropna("cell")
    low, high = flat.isel(cell=int(flat.values.argmin())), flat.isel(cell=int(flat.values.argmax()))
    return (f"{flat.mean().item():.3f}", f"{low.item():.3f}", _head(low), f"{high.item():.3f}", _head(high))


def _head(cell: "xr.DataArray") -> str:
    """ "encoder 3.7": the stack, the layer and the head, both counted from 1; or the explanation."""
    where = {dim: cell.coords[dim].item() for dim in (*PER_HEAD, METHOD) if dim in cell.coords}
    numbers = ".".join(str(where[dim]) for dim in (LAYER, HEAD) if dim in where)
    return " ".join(filter(None, (where.get(STACK, where.get(METHOD, "")), numbers)))


def show_table(table: "TextTable") -> None:
    """Print the table of a lens, with its notes."""
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.cli.consoles import out

    shown = Table(title=table.title or None, box=None, pad_edge=False)
    for title in table.titles:
        shown.add_column(title, justify="left" if title == table.titles[0] else "right")
    for row in table.rows:
        shown.add_row(*map(escape, row))
    out().print(shown)
    for note in table.notes:
        out().print(note, markup=False, soft_wrap=True)
