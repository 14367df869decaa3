"""Each text's own numbers beside the means over texts: labelled arrays in memory, Parquet in the folder of a run."""

import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError, near, optional, reason

if TYPE_CHECKING:
    import pandas as pd

WEIGHT = "_weight"


def texts_file(lens: str) -> str:
    """What the file of a lens is called in the folder of a run."""
    return f"{lens}.texts.parquet"


class TextNumbers(Mapping[str, xr.Dataset]):
    """By lens `x` and `x_weight`, [text …]; from memory, or from the files of a run, which are read when asked for."""

    def __init__(self, arrays: dict[str, xr.Dataset], files: Mapping[str, Path] | None = None) -> None:
        self._arrays, self._files = arrays, dict(files or {})

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._arrays, *self._files]))

    def __len__(self) -> int:
        return len({*self._arrays, *self._files})

    def __getitem__(self, lens: str) -> xr.Dataset:
        if lens not in self._arrays:
            self._arrays[lens] = _arrays(_read(self._files[lens]))
        return self._arrays[lens]

    def joined(self, other: "TextNumbers", lenses: Collection[str]) -> "TextNumbers":
        """With those of some lenses of another run."""
        arrays = {name: numbers for name, numbers in other._arrays.items() if name in lenses}
        files = {name: path for name, path in other._files.items() if name in lenses}
        return TextNumbers({**arrays, **self._arrays}, {**files, **self._files})

    def frame(self, lens: str | None = None, variable: str | None = None) -> "pd.DataFrame":
        """A row for every text and cell that has a number."""
        import pandas as pd

        if not len(self):
            raise UserError('The numbers of single texts were not kept. Run look with keep="texts" (--keep texts).')
        if lens is not None and lens not in self:
            raise UserError(f"The numbers of single texts were not kept for the lens {lens!r}.{near(lens, list(self))} "
                            f"They were kept for {', '.join(self)}.")  # fmt: skip
        frames = []
        for name in self if lens is None else [lens]:
            frames += [each.assign(lens=name) for each in _frames(self[name], variable)]
        if not frames:
            raise UserError(f"The variable {variable!r} has no numbers of single texts.")
        table = pd.concat(frames, ignore_index=True)
        first, last = ["lens", axes.TEXT, "variable"], ["value", "weight"]
        return table[[*first, *(column for column in table if column not in (*first, *last)), *last]]

    def write(self, lens: str, path: Path) -> None:
        """As Parquet: the columns of `frame` without the lens."""
        if lens not in self._arrays:
            shutil.copyfile(self._files[lens], path)
            return
        optional("pyarrow", "export")
        self.frame(lens).drop(columns="lens").to_parquet(path, index=False)


def _frames(data: xr.Dataset, variable: str | None) -> "Iterator[pd.DataFrame]":
    import pandas as pd

    for name in data.data_vars:
        if str(name).endswith(WEIGHT) or variable not in (None, name):
            continue
        weight = data[f"{name}{WEIGHT}"]
        cells = np.nonzero(weight.values)
        columns = {str(dim): weight[dim].values[at] for dim, at in zip(weight.dims, cells, strict=True)}
        numbers = {"value": data[name].values[cells], "weight": weight.values[cells]}
        yield pd.DataFrame({"variable": str(name), **columns, **numbers})


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    optional("pyarrow", "export")
    try:
        return pd.read_parquet(path)
    except Exception as error:  # pyarrow's own errors, and whatever an edited file leads to
        raise UserError(f"Cannot read {path} ({reason(error)}). Run look again with --keep texts.") from error


def _arrays(table: "pd.DataFrame") -> xr.Dataset:
    """The labelled arrays that a table was made from, as far as they have numbers."""
    out: dict[str, xr.DataArray] = {}
    for name, rows in table.groupby("variable", sort=False, observed=True):
        dims = [
            column for column in rows if column not in ("variable", "value", "weight") and rows[column].notna().all()
        ]
        whole = {column: "int64" for column in rows.select_dtypes("float").columns if column in dims}
        cells = rows.astype(whole).set_index(dims)
        array = cells[["value", "weight"]].to_xarray()
        out |= {str(name): array["value"], f"{name}{WEIGHT}": array["weight"].fillna(0.0)}
    return xr.Dataset(out)
