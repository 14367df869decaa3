"""A bounded random sample whose states merge: the items, or whole groups of items, with the smallest hashes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.statistics.hashing import text_key

STRATUM, NUMBER, ITEM, LENGTHS = range(4)
"""Columns of the index: stratum, the number of the item or of its group, the item's own, lengths of ragged columns."""
_MOST = 2**53
"""Numbers are below this, so that they are exact in float64 and leave room for the stratum in one key."""


@runtime_checkable
class Holder(Protocol):
    """The owner of the states: a lens."""

    def state(self, name: str, start: Tensor, merge: Any, *, in_place: bool, **options: Any) -> None: ...


@dataclass(frozen=True)
class Column:
    """What is kept of an item: a tensor of this shape, or (`ragged`) as many of them as the item has."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float64
    ragged: bool = False
    on_device: bool = False
    """Kept where the model is; the index, which says what is kept, is always on the CPU."""


NAME = Column(dtype=torch.uint8, ragged=True)
"""A text, as its bytes."""


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on a device, without waiting for a GPU."""
    sent = device.type == "cuda" and tensor.numel() > 0
    return tensor.pin_memory().to(device, non_blocking=True) if sent else tensor.to(device)


@dataclass(frozen=True)
class Chosen:
    """The next contents of a sample, before the columns of the new items are there."""

    kept: Int[Tensor, " new"]  # which of the offered items are kept
    index: Int[Tensor, "item column"]  # of the items already kept, followed by the new ones
    order: Int[Tensor, " kept"]  # positions of the next contents in it


class HashSample:
    """Keeps of each stratum the `size` items of smallest number, with whatever belongs to them; None keeps all.

    A number depends on nothing but the item, so which items are kept depends on nothing else either: not on order,
    batches or shards. With `each` items come in groups: a number is the group's, at most `each` items of a group are
    kept (those of smallest `items` number), and as many whole groups as fit. A group that did not fit once is left out
    for good, so that a group that is there is there with all its items.

    Every column is a state; those of several processes are put behind one another, and what is then too much is cut
    when the sample is next looked at.
    """

    def __init__(
        self,
        lens: Holder,
        name: str,
        columns: Mapping[str, Column],
        *,
        size: int | None,
        strata: int = 1,
        each: int | None = None,
    ) -> None:
        self.lens, self.name, self.columns = lens, name, dict(columns)
        self.size, self.strata, self.each = size, strata, each
        self._settled: Tensor | None = None
        """The index as last sorted and cut; the lens's own may have changed since, for example by a merge."""
        self.ragged: list[str] = [column for column, kind in self.columns.items() if kind.ragged]
        index = torch.zeros(0, LENGTHS + len(self.ragged), dtype=torch.int64)
        lens.state(f"{name}_index", index, "cat", in_place=False)
        for column, kind in self.columns.items():
            where = {"on_device": True, "large": True} if kind.on_device else {}
            start = torch.zeros(0, *kind.shape, dtype=kind.dtype)
            lens.state(f"{name}_{column}", start, "cat", in_place=False, **where)
        if each is not None:
            lens.state(f"{name}_bar", torch.full((strata,), _MOST), "min", in_place=False)

    def limits(self) -> Float[Tensor, " stratum"]:
        """The number that an item must be below to get into each stratum, as far as is known; infinite if any may."""
        out = torch.full((self.strata,), torch.inf, dtype=torch.float64)
        index = self._state("index").numpy()
        index = index[self._order(index)]
        for stratum in range(self.strata):
            numbers = index[index[:, STRATUM] == stratum, NUMBER]
            if self.each is None and self.size is not None and len(numbers) >= self.size:
                out[stratum] = float(numbers.max())
        return out

    def offer(
        self,
        numbers: Int[Tensor, " item"],
        make: "Callable[[Int[Tensor, ' kept']], Mapping[str, Tensor | Sequence[Tensor]]]",
        items: Int[Tensor, " item"] | None = None,
        stratum: int = 0,
    ) -> None:
        """Offer items whose columns are made only where they are kept: `make` is told which, by place, and makes them.

        All items of a group that come in one batch must be offered in one call.
        """
        chosen = self.chosen(numbers, items, stratum)
        if chosen is not None:
            self.keep(chosen, make(chosen.kept))

    def chosen(
        self, numbers: Int[Tensor, " item"], items: Int[Tensor, " item"] | None = None, stratum: int = 0
    ) -> Chosen | None:
        """Which of the offered items are kept, for `keep`; None if the sample stays as it is.

        In NumPy, as all that is done with the index: it takes a fraction of the time on arrays of this length.
        """
        state = self._state("index")
        old = state.numpy()
        number, item = numbers.numpy(), (numbers if items is None else items).numpy()
        some = self._open(number, item, stratum)
        if not len(some) and state is self._settled:
            return None
        joined = np.concatenate([old, self._indexed(number[some], item[some], stratum)])
        order = self._order(joined, settle=True)
        come = order >= len(old)
        new = order[come]
        if not len(new) and len(order) == len(old) and state is self._settled:
            return None
        order[come] = len(old) + np.arange(len(new))  # behind the kept items, in the order of the sample
        index = np.concatenate([old, joined[new]])
        return Chosen(*map(torch.from_numpy, (some[new - len(old)], index, order)))

    def keep(self, chosen: Chosen, columns: Mapping[str, Tensor | Sequence[Tensor]]) -> None:
        """Add the columns of the chosen items."""
        self._keep(chosen.index, columns, chosen.order)

    def add(
        self,
        numbers: Int[Tensor, " item"],
        items: Int[Tensor, " item"] | None = None,
        stratum: "int | Int[Tensor, ' item']" = 0,
        **columns: Tensor | Sequence[Tensor],
    ) -> None:
        """Offer items with all their columns; a ragged one is a list of tensors."""
        number, item = numbers.numpy(), (numbers if items is None else items).numpy()
        strata = stratum.numpy() if isinstance(stratum, Tensor) else stratum
        joined = np.concatenate([self._state("index").numpy(), self._indexed(number, item, strata)])
        everything = self.size is None and self.each is None  # the sample is put in order when it is read
        order = None if everything else torch.from_numpy(self._order(joined, settle=True))
        self._keep(torch.from_numpy(joined), columns, order)

    def _indexed(
        self, number: Int[np.ndarray, " item"], item: Int[np.ndarray, " item"], stratum: int | np.ndarray
    ) -> Int[np.ndarray, "item column"]:
        index = np.zeros((len(number), LENGTHS + len(self.ragged)), dtype=np.int64)
        index[:, STRATUM] = stratum
        index[:, NUMBER], index[:, ITEM] = number, item
        return index

    def _open(
        self, number: Int[np.ndarray, " item"], item: Int[np.ndarray, " item"], stratum: int
    ) -> Int[np.ndarray, " open"]:
        """A cheap filter for items that may be kept, so that the many others are never sorted."""
        state = self._state("index")
        index = state.numpy()
        below = _MOST if self.each is None else int(self._state("bar")[stratum])
        start, stop = np.searchsorted(index[:, STRATUM], (stratum, stratum + 1)) if state is self._settled else (0, 0)
        own = index[start:stop]
        if self.each is None and self.size is not None and len(own) >= self.size:
            below = int(own[-1, NUMBER])
        some = np.flatnonzero(number < below)
        if self.each is None or not len(own):
            return some
        starts = _starts(own[:, NUMBER])
        sizes = np.diff(starts, append=len(own))
        groups, last = own[starts, NUMBER], own[starts + sizes - 1, ITEM]
        at = np.minimum(np.searchsorted(groups, number[some]), len(groups) - 1)
        full = (groups[at] == number[some]) & (sizes[at] >= self.each)
        return some[~full | (item[some] < last[at])]

    def _keep(
        self,
        joined: Int[Tensor, "item column"],
        columns: Mapping[str, Tensor | Sequence[Tensor]],
        order: Int[Tensor, " kept"] | None,
    ) -> None:
        """Append columns, then keep the items in this order, or all of them."""
        there = len(self._state("index"))
        for place, name in enumerate(self.ragged, LENGTHS):
            joined[there:, place] = torch.tensor([len(part) for part in columns[name]], dtype=torch.int64)
        for name in self.columns:
            values = torch.cat([self._state(name), *self._rows(name, columns[name])])
            self._set(name, values if order is None else self._picked(name, values, joined, order))
        self._settled = None if order is None else joined[order]
        self._set("index", joined if self._settled is None else self._settled)

    def rows(self, stratum: int | None = None) -> "Rows":
        """The sample, by stratum, number and item; of one stratum or of all."""
        joined = self._state("index")
        order = torch.from_numpy(self._order(joined.numpy()))
        if stratum is not None:
            order = order[joined[order, STRATUM] == stratum]
        columns = {name: self._picked(name, self._state(name), joined, order) for name in self.columns}
        return Rows(joined[order], columns, {name: LENGTHS + place for place, name in enumerate(self.ragged)})

    def _rows(self, name: str, given: Tensor | Sequence[Tensor]) -> list[Tensor]:
        kind = self.columns[name]
        parts = given if not isinstance(given, Tensor) else [given]
        device = self._state(name).device
        return [part.detach().to(device, kind.dtype).reshape(-1, *kind.shape) for part in parts]

    def _order(self, index: Int[np.ndarray, "item column"], *, settle: bool = False) -> Int[np.ndarray, " kept"]:
        """Positions of the kept items, ordered by stratum, number and item."""
        stratum, number = index[:, STRATUM], index[:, NUMBER]
        key = stratum * _MOST + number
        order = np.argsort(key, kind="stable")  # cheap: only the new items are out of order
        if self.each is not None:
            order = order[(number < self._state("bar").numpy()[stratum])[order]]
        if self.size is None or not len(order):
            return order
        runs = stratum[order]
        if self.each is not None:
            key = key[order]
            starts = _starts(key)
            sizes = np.diff(starts, append=len(order))
            fits = np.repeat(self._fits(index[order[starts]], sizes, settle), sizes)
            order, runs = order[fits], np.repeat(np.arange(len(starts)), sizes)[fits]
            order = order[_within(runs, index[order, ITEM])]
        starts = _starts(runs)
        place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        return order[place < (self.size if self.each is None else self.each)]

    def _fits(
        self, groups: Int[np.ndarray, "group column"], sizes: Int[np.ndarray, " group"], settle: bool
    ) -> Bool[np.ndarray, " group"]:
        """Whole groups while they fit; the number of the first that does not is the bar from then on."""
        assert self.each is not None
        taken, fits = np.minimum(sizes, self.each), np.zeros(len(groups), dtype=bool)
        for stratum in range(self.strata):
            mine = np.flatnonzero(groups[:, STRATUM] == stratum)
            fits[mine] = np.cumsum(taken[mine]) <= self.size
            left_out = mine[~fits[mine]]
            if settle and len(left_out):
                bar = self._state("bar").clone()
                bar[stratum] = int(groups[left_out[0], NUMBER])
                self._set("bar", bar)
        return fits

    def _picked(self, name: str, values: Tensor, index: Int[Tensor, "item column"], order: Tensor) -> Tensor:
        if name not in self.ragged:
            return values[moved(order, values.device)]
        lengths = index[:, LENGTHS + self.ragged.index(name)]
        starts = (lengths.cumsum(0) - lengths)[order]
        wide = lengths[order]
        within = torch.arange(int(wide.sum())) - (wide.cumsum(0) - wide).repeat_interleave(wide)
        return values[starts.repeat_interleave(wide) + within]

    def _state(self, name: str) -> Tensor:
        return getattr(self.lens, f"{self.name}_{name}")

    def _set(self, name: str, value: Tensor) -> None:
        setattr(self.lens, f"{self.name}_{name}", value)


def _starts(runs: Int[np.ndarray, " item"]) -> Int[np.ndarray, " run"]:
    """Where each run of equal numbers begins."""
    begins = np.ones(len(runs), dtype=bool)
    np.not_equal(runs[1:], runs[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def _within(runs: Int[np.ndarray, " item"], numbers: Int[np.ndarray, " item"]) -> Int[np.ndarray, " item"]:
    """The order of numbers within each run; runs are counted from 0."""
    order = np.argsort(numbers, kind="stable")
    # NumPy sorts small types by radix, in a tenth of the time.
    return order[np.argsort(runs[order].astype(np.min_scalar_type(int(runs.max(initial=0)))), kind="stable")]


@dataclass(frozen=True)
class Rows:
    """What a sample holds, in the order of strata and numbers."""

    index: Int[Tensor, "item column"]
    columns: Mapping[str, Tensor]
    lengths: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def numbers(self) -> Int[Tensor, " item"]:
        return self.index[:, NUMBER]

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def pieces(self, name: str) -> list[Tensor]:
        """A ragged column, item by item."""
        return list(self.columns[name].split(self.index[:, self.lengths[name]].tolist()))

    def names(self, name: str = "id") -> list[str]:
        return [bytes(piece.tolist()).decode() for piece in self.pieces(name)]

    def groups(self, name: str) -> list[Tensor]:
        """A column, group by group."""
        return list(self.columns[name].split(self.sizes().tolist())) if len(self) else []

    def sizes(self) -> Int[Tensor, " group"]:
        """How many items each group has."""
        return torch.unique_consecutive(self.index[:, : NUMBER + 1], dim=0, return_counts=True)[1]


class NameSet:
    """A set of names as a state that merges, for example of texts that could not be used."""

    def __init__(self, lens: Holder, name: str) -> None:
        self.sample: HashSample = HashSample(lens, name, {"id": NAME}, size=None)

    def add(self, names: Sequence[str]) -> None:
        self.sample.add(torch.tensor([text_key(name) >> 11 for name in names], dtype=torch.int64), id=as_names(names))

    def first(self, count: int) -> list[str]:
        """The first names in alphabetical order."""
        return sorted(set(self.sample.rows().names()))[:count]


def as_names(names: Sequence[str]) -> list[Tensor]:
    """Texts as a ragged column of bytes."""
    return [torch.tensor(list(name.encode()), dtype=torch.uint8) for name in names]
