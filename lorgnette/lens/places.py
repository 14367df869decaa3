"""Where numbers belong: to every head of every site, to every site, or to other places laid out alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import xarray as xr
from jaxtyping import Float
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

    def grid(self, cells: Float[Tensor, "site *rest"], rest: Mapping[str, Labels] | None = None) -> xr.DataArray:
        """Lay [site (head) …] out as [stack layer (head) …]; a site that a stack does not have is missing.

        `rest` names the further axes, with their labels or None. Heads that are left of a pruned model stand where they
        stood, and those that were removed are missing.
        """
        rest = rest or {}
        stacks = list(dict.fromkeys(site.name for site in self.sites))
        layers = 1 + max(site.layer for site in self.sites)
        out = torch.full((len(stacks), layers, *cells.shape[1:]), torch.nan, dtype=torch.float64)
        for number, site in enumerate(self.sites):
            out[stacks.index(site.name), site.layer] = self._in_place(cells[number].double().cpu(), site)
        coordinates: dict[str, Labels] = {
            axes.STACK: stacks,
            self.layer: list(range(self.first, self.first + layers)),
        }
        if self.heads is not None:
            coordinates[axes.HEAD] = list(range(1, cells.shape[1] + 1))
        coordinates |= {axis: list(labels) for axis, labels in rest.items() if labels is not None}
        return xr.DataArray(out.numpy(), dims=(*self.dims, *rest), coords=coordinates)

    def _in_place(self, cells: Float[Tensor, "*rest"], site: Site) -> Float[Tensor, "*rest"]:
        """The cells of the heads that a site has, moved to their original numbers; rows behind the heads stay."""
        numbers = self.numbers.get(site)
        if self.heads is None or numbers is None or tuple(numbers) == tuple(range(self.heads)):
            return cells
        out = cells.clone()
        out[: self.heads] = torch.nan
        out[list(numbers)] = cells[: len(numbers)]
        return out
