"""What the cells of an array belong to: every head of every site, every site, or heads taken together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site

Labels = Sequence[str | int | float] | None


@dataclass(frozen=True)
class Places:
    """Sites with their heads ([site head …]), or sites alone ([site …]) where `heads` is None.

    `together` rows behind the heads are of no single head. `numbers` says which of the original heads a site of a
    pruned model still has. `layer` is what the axis of layers is called, and `first` where it starts to count.
    """

    sites: tuple[Site, ...]
    heads: int | None = None
    numbers: Mapping[Site, Sequence[int]] = field(default_factory=dict)
    together: int = 0
    layer: str = axes.LAYER
    first: int = 1

    @property
    def dims(self) -> tuple[str, ...]:
        return (axes.STACK, self.layer) if self.heads is None else (axes.STACK, self.layer, axes.HEAD)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sites),) if self.heads is None else (len(self.sites), self.heads + self.together)

    def index(self, site: Site) -> int:
        return self.sites.index(site)

    @cached_property
    def stacks(self) -> list[str]:
        return list(dict.fromkeys(site.name for site in self.sites))

    @cached_property
    def layers(self) -> int:
        return 1 + max(site.layer for site in self.sites)

    @cached_property
    def _at(self) -> tuple[list[int], list[int]]:
        """Stack and layer of every site."""
        return [self.stacks.index(site.name) for site in self.sites], [site.layer for site in self.sites]

    def labels(self, rest: Mapping[str, Labels] | None = None) -> dict[str, Labels]:
        """The labels of every axis that has any; `rest` names the further axes, with their labels or None."""
        out: dict[str, Labels] = {
            axes.STACK: self.stacks,
            self.layer: list(range(self.first, self.first + self.layers)),
        }
        if self.heads is not None:
            out[axes.HEAD] = list(range(1, self.shape[1] + 1))
        return out | {axis: list(labels) for axis, labels in (rest or {}).items() if labels is not None}

    def laid_out(self, cells: Shaped[np.ndarray, "*cell"], lead: int = 0) -> Float[np.ndarray, "*laid_out"]:
        """Lay [… site (head) …] out as [… stack layer (head) …], behind `lead` axes of its own; without labels.

        A site that a stack does not have is missing. Heads that are left of a pruned model stand where they stood, and
        those that were removed are missing.
        """
        flat = cells.reshape(math.prod(cells.shape[:lead]), *cells.shape[lead:])
        out = np.full((len(flat), len(self.stacks), self.layers, *flat.shape[2:]), np.nan)
        stacks, layers = self._at
        out[:, stacks, layers] = flat
        for number, site in enumerate(self.sites):
            numbers = self.numbers.get(site)
            if self.heads is not None and numbers is not None and tuple(numbers) != tuple(range(self.heads)):
                there = out[:, stacks[number], layers[number]]
                there[:, : self.heads] = np.nan
                there[:, list(numbers)] = flat[:, number, : len(numbers)]
        return out.reshape(*cells.shape[:lead], *out.shape[1:])

    def grid(self, cells: Shaped[Tensor, "site *rest"], rest: Mapping[str, Labels] | None = None) -> xr.DataArray:
        """Cells [site (head) …] as [stack layer (head) …], see `laid_out`, with labels."""
        values = self.laid_out(cells.cpu().double().numpy())
        return xr.DataArray(values, dims=(*self.dims, *(rest or {})), coords=self.labels(rest))
