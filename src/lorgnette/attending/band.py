"""Masks without memory: padding and a band along the diagonal. The n×n mask is made only if something reads it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only


class Band(NamedTuple):
    """Which keys a row may see, by distance alone.

    Row i stands at position i + keys − queries (a cache has the keys before it). `causal`: no key after it. `window`:
    no key farther from it than this, on either side.
    """

    causal: bool = False
    window: int | None = None

    def __bool__(self) -> bool:
        """Whether it hides anything."""
        return self.causal or self.window is not None

    def keys(
        self, rows: slice | Int[Tensor, " row"], queries: int, keys: int, device: torch.device
    ) -> Bool[Tensor, "row key"]:
        """Which keys each of these rows may see."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(queries), device=device)
        here, key = (rows + (keys - queries))[:, None], torch.arange(keys, device=device)
        if self.window is None:
            return key <= here if self.causal else torch.ones_like(key <= here)
        behind = key >= here - self.window
        return behind.logical_and_(key <= (here if self.causal else here + self.window))

    def limits(
        self, queries: int, keys: int, device: torch.device
    ) -> tuple[Int[Tensor, " query"], Int[Tensor, " query"]]:
        """For each row, the first key of the band and the first key after it."""
        here = torch.arange(keys - queries, keys, device=device)
        first = torch.zeros_like(here) if self.window is None else here - self.window
        last = here if self.causal else torch.full_like(here, keys) if self.window is None else here + self.window
        return first.clamp(0, keys), (last + 1).clamp(0, keys)

    def query_range(
        self, queries: int, keys: int, device: torch.device
    ) -> tuple[Int[Tensor, " key"], Int[Tensor, " key"]]:
        """For each key, the first row that may see it and the first row after the last such row."""
        here = torch.arange(keys, device=device) - (keys - queries)
        last = torch.full_like(here, queries) if self.window is None else here + self.window
        first = here if self.causal else torch.zeros_like(here) if self.window is None else here - self.window
        return first.clamp(0, queries), (last + 1).clamp(0, queries)


class BandMask(Tensor):
    """A mask [batch 1 query key] of padding and a band, which holds no more than the padding.

    It has the shape, type and device of the whole mask and no memory of its own. Any operation on it works on the whole
    mask, made then and kept, so that a model may slice, add to or invert its mask. `intact` says that nobody can have
    written to it: only then is it what padding and band say.
    """

    padding: Bool[Tensor, "batch 1 1 key"] | None
    band: Band
    intact: bool
    _whole: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls,
        shape: tuple[int, int, int, int],
        padding: Bool[Tensor, "batch 1 1 key"] | None,
        band: Band,
        device: torch.device | str,
    ) -> "BandMask":
        self = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=torch.device(device))
        self.padding, self.band, self.intact, self._whole = padding, band, True, None
        return self

    def __init__(self, *_: object) -> None:
        """`__new__` does everything."""

    @property
    def whole(self) -> Bool[Tensor, "batch 1 query key"]:
        """The mask as a plain tensor, shared by all callers: do not write to it."""
        if self._whole is None:
            queries, keys = self.shape[2:]
            seen = self.band.keys(slice(0, queries), queries, keys, self.device)
            self._whole = (seen if self.padding is None else seen & self.padding).expand(self.shape)
        return self._whole

    def numpy(self, *, force: bool = False) -> np.ndarray:
        return self.whole.numpy(force=force)

    def tolist(self) -> list[object]:
        return list(self.whole.tolist())

    def __deepcopy__(self, memo: object) -> Tensor:
        return self.whole.clone()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        # An operation that writes to it, or returns a view that could be written to, turns it into an ordinary mask.
        exposed = any(argument.alias_info is not None for argument in func._schema.arguments)

        def opened(mask: BandMask) -> Tensor:
            mask.intact = mask.intact and not exposed
            return mask.whole

        args, kwargs = tree_map_only(BandMask, opened, (args, dict(kwargs or {})))
        return func(*args, **kwargs)


def plain(mask: Tensor) -> Tensor:
    """The mask as an ordinary tensor."""
    return mask.whole if isinstance(mask, BandMask) else mask
