"""Finished cells, found by their labels and read as labelled arrays: all that a page is made of."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray as xr

from reproductions.frame.settings import Settings

if TYPE_CHECKING:
    from reproductions.frame.cells import Cell

Label = str | int | float | bool | None
_EVERY = "*"
Part = TypeVar("Part")


class MissingCell(KeyError):
    """What is asked for rests on a cell that was not run."""


def made(makers: "Iterable[Callable[[], Part]]") -> "Iterator[Part]":
    """What some functions make (claims, tables, figures), without those whose cells were not run."""
    for make in makers:
        try:
            part = make()
        except MissingCell:
            continue
        yield part


@dataclass(frozen=True)
class Measured:
    """One finished cell: where it lies in the grid, and an `xarray.Dataset` or plain values in dictionaries."""

    key: str
    labels: Mapping[str, Label]
    result: Any
    document: Mapping[str, Any]

    def value(self, path: str) -> Any:
        """The value at a path of names between dots; `*` takes all entries of a list: "curve.*.train.accuracy"."""
        if isinstance(self.result, xr.Dataset):
            return self.result[path]
        return _at(self.result, path.split("."))


class Finished:
    """The finished cells of a grid; `missing` are the keys of those that are not there."""

    def __init__(self, settings: Settings, grid: "Mapping[str, Cell]", results: Mapping[str, Any], documents: Any):
        self.settings, self.grid = settings, grid
        self.cells = [Measured(k, cell.labels, results[k], documents[k]) for k, cell in grid.items() if k in results]
        self.missing = tuple(key for key in grid if key not in results)

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[Measured]:
        return iter(self.cells)

    def of(self, **labels: Label) -> list[Measured]:
        """Those with these labels, in the order of the grid."""
        wanted = labels.items()
        return [
            cell for cell in self.cells if all(name in cell.labels and cell.labels[name] == v for name, v in wanted)
        ]

    def where(self, **labels: Any) -> "Finished":
        """Those with these labels, as a grid of their own."""
        part = copy(self)
        part.cells = self.of(**labels)
        return part

    def one(self, **labels: Label) -> Any:
        """The result of the one cell with these labels."""
        cells = self.of(**labels)
        if not cells:
            raise MissingCell(f"no finished cell has the labels {labels}")
        if len(cells) > 1:
            raise KeyError(f"{len(cells)} finished cells have the labels {labels}, not one")
        return cells[0].result

    def labels(self, name: str, **labels: Label) -> list[Any]:
        """The values of a label among those with these labels, each once, in the order of the grid."""
        return list(dict.fromkeys(cell.labels[name] for cell in self.of(**labels) if name in cell.labels))

    def array(self, path: str, *dims: str, inner: str | Sequence[str] = (), **labels: Label) -> xr.DataArray:
        """What lies at `path` in every cell with these labels, along the labels named by `dims`.

        A value that is itself a list has the dimensions `inner`, padded with NaN where lists differ in length. NaN
        stands where a cell is missing; no cell at all gives an empty array.
        """
        cells, inside = self.of(**labels), (inner,) if isinstance(inner, str) else tuple(inner)
        coords = {dim: list(dict.fromkeys(cell.labels[dim] for cell in cells)) for dim in dims}
        values = [np.asarray(cell.value(path), dtype=float) for cell in cells]
        if any(value.ndim != len(inside) for value in values):
            raise ValueError(f"{path} has other dimensions than {inside}")
        shape = np.max([value.shape for value in values], axis=0).astype(int).tolist() if values and inside else []
        out = np.full([*map(len, coords.values()), *(shape or [0] * len(inside))], np.nan)
        filled = set()
        for cell, value in zip(cells, values, strict=True):
            place = tuple(coords[dim].index(cell.labels[dim]) for dim in dims)
            if place in filled:
                raise ValueError(f"two cells lie at {dict(cell.labels)} along {dims}: name more labels")
            filled.add(place)
            inside_of = tuple(slice(size) for size in value.shape)
            out[place + inside_of] = value
        return xr.DataArray(out, dims=(*dims, *inside), coords=coords)


def _at(value: Any, names: Sequence[str]) -> Any:
    for index, name in enumerate(names):
        if name == _EVERY:
            return [_at(entry, names[index + 1 :]) for entry in value]
        value = value[name]
    return value
