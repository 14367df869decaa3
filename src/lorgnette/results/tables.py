"""Results as tidy tables: numbers with the same axes share a table, each axis and each variable is a column."""

from pathlib import Path
from typing import TYPE_CHECKING

from lorgnette import axes
from lorgnette.errors import UserError, optional
from lorgnette.files import written_whole
from lorgnette.results.result import Result, Results, frame

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "parquet")
_WHOLE = {axes.HEAD: "heads", axes.LAYER: "layers", axes.STATE: "states"}
"""Names of tables, by the last of these axes that a table has."""


def tables(result: Result) -> "dict[str, pd.DataFrame]":
    """By name ("heads", "heads-category", "layers", "corpus" …); rows without a number are left out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, array in result.data.data_vars.items():
        groups.setdefault(tuple(map(str, array.dims)), []).append(str(name))
    out = {}
    for dims, names in groups.items():
        table = frame(result.data[names], dims)
        whole = next((word for axis, word in _WHOLE.items() if axis in dims), "corpus")
        more = [dim for dim in dims if dim not in (axes.STACK, *_WHOLE)]
        out["-".join([whole, *more])] = table.dropna(how="all", subset=names)[[*dims, *names]]
    return out


def export(results: Results, folder: Path, kind: str) -> list[Path]:
    """Writes every table as FOLDER/lens.name.csv (or .parquet), each whole or not at all; texts' numbers too."""
    if kind not in FORMATS:
        raise UserError(f"Tables are written as {' or '.join(FORMATS)}. Got {kind!r} instead.")
    if kind == "parquet":
        optional("pyarrow", "export")
    named = {f"{lens}.{name}": table for lens, result in results.items() for name, table in tables(result).items()}
    named |= {f"{lens}.texts": results.texts(lens).drop(columns="lens") for lens in results.text_numbers}
    paths = []
    for name, table in named.items():
        path = folder / f"{name}.{kind}"
        with written_whole(path) as partial:
            table.to_csv(partial, index=False) if kind == "csv" else table.to_parquet(partial, index=False)
        paths.append(path)
    return paths
