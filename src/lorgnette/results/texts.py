"""Each text's own numbers beside the means over texts: labelled arrays in memory, Parquet in the folder of a run."""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError, near, optional, reason
from lorgnette.results import schema
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

WEIGHT = "_weight"
_LAYOUT = b"lorgnette-texts"
"""The entry of a file's metadata that says how its rows lie in arrays: the labels of every axis, and the axes of every
variable. The rows alone do not: a label whose cells are all empty has none."""


def texts_file(lens: str) -> str:
    """The name of a lens's file in the folder of a run."""
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
            self._arrays[lens] = _read(self._files[lens])
        return self._arrays[lens]

    def joined(self, other: "TextNumbers", lenses: Collection[str]) -> "TextNumbers":
        """These numbers joined with those of further lenses from another run."""
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
        """As Parquet: the columns of `frame` without the lens, and in the metadata the axes of the arrays."""
        if lens not in self._arrays:
            shutil.copyfile(self._files[lens], path)
            return
        optional("pyarrow", "export")
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(self.frame(lens).drop(columns="lens"), preserve_index=False)
        layout = {_LAYOUT: json.dumps(_layout(self._arrays[lens]))}
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **layout}), path)


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


def _layout(data: xr.Dataset) -> Json:
    variables = [str(name) for name in data.data_vars if not str(name).endswith(WEIGHT)]
    return {
        "axes": schema.encode(data.drop_vars(list(data.data_vars))),
        "sizes": {str(dim): size for dim, size in data.sizes.items()},
        "variables": {name: [str(dim) for dim in data[name].dims] for name in variables},
    }


def _read(path: Path) -> xr.Dataset:
    optional("pyarrow", "export")
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        return _arrays(table.to_pandas(), json.loads(table.schema.metadata[_LAYOUT]))
    except Exception as error:  # pyarrow's own errors, and whatever an edited file leads to
        raise UserError(f"Cannot read {path} ({reason(error)}). Run look again with --keep texts.") from error


def _arrays(table: "pd.DataFrame", layout: Json) -> xr.Dataset:
    """The arrays that a table was made from: rows go to the cells that their labels name, other cells are empty."""
    axes_only = schema.decode(layout["axes"])
    by_variable = dict(iter(table.groupby("variable", sort=False, observed=True)))
    if unknown := set(by_variable) - set(layout["variables"]):
        raise ValueError(f"numbers of {', '.join(map(str, sorted(unknown)))}, which has no axes")
    out: dict[str, xr.Variable] = {}
    for name, dims in layout["variables"].items():
        shape = tuple(layout["sizes"][dim] for dim in dims)
        value, weight = np.full(shape, np.nan), np.zeros(shape)
        if name in by_variable:
            rows = by_variable[name]
            cells = tuple(_positions(axes_only, dim, shape[at], rows[dim]) for at, dim in enumerate(dims))
            if len(np.unique(np.ravel_multi_index(cells, shape))) < len(rows):
                raise ValueError(f"two numbers of {name!r} for one cell")
            value[cells], weight[cells] = rows["value"], rows["weight"]
        out |= {name: xr.Variable(dims, value), f"{name}{WEIGHT}": xr.Variable(dims, weight)}
    return axes_only.assign(out)


def _positions(data: xr.Dataset, dim: str, size: int, labels: "pd.Series") -> np.ndarray:
    """Where labels stand on their axis; an axis without labels counts from 0."""
    import pandas as pd

    at = pd.Index(data[dim].values if dim in data.coords else range(size)).get_indexer(labels)
    if (at < 0).any():
        raise ValueError(f"a number at a place that the axis {dim!r} does not have")
    return at
