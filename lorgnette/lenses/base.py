"""What every lens shares: streaming states that merge, means over texts with their standard errors, and the result."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torchmetrics
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attention import Call, Site, Tap
from lorgnette.corpora.batch import Batch
from lorgnette.errors import UserError
from lorgnette.results import Result
from lorgnette.results.provenance import Provenance
from lorgnette.subject import Subject


class Lens(torchmetrics.Metric):
    """A streaming analysis: `update` per attention call and batch, `compute` gives a `Result`.

    A `torchmetrics.Metric` whose states are float64 sums, so that it works in a training loop of your own, shards under
    `torchrun` and merges. A subclass names itself, allocates states in `allocate`, and accumulates in `update`.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    wants_residual: ClassVar[bool] = False
    wants_hidden_states: ClassVar[bool] = False
    wants_gradients: ClassVar[bool] = False
    """Run the pass with gradients on; `finish` then does the one backward pass itself."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Lenses whose results it is made from; `look` brings them along, and hands them over at the end."""
    full_state_update: bool | None = False
    _update_count: int

    def __init__(self) -> None:
        super().__init__(compute_on_cpu=False)
        self.bound = False
        self.provenance = Provenance(model="unknown")

    def bind(self, subject: Subject) -> None:
        """Say what will be looked at; `look` does this before the first batch."""
        if self.bound:
            if self.sites != subject.sites or self.heads != subject.heads:
                raise UserError(f"The lens {self.name!r} has looked at another model already; make a new one.")
            return
        self.sites: tuple[Site, ...] = subject.sites
        self.heads: int = subject.heads
        self.numbers = {each.site: each.numbers for each in subject.anatomy.sites}
        self.position = {site: number for number, site in enumerate(self.sites)}
        self.provenance = Provenance(model=subject.name)
        self.allocate(subject)
        self.bound = True

    def allocate(self, subject: Subject) -> None:
        """Declare the states."""

    def before(self) -> "Sequence[Lens]":
        """Lenses that must have looked through the whole corpus before this one begins."""
        return ()

    def prepare(self, found: Mapping[str, Result]) -> None:
        """Take in what they found, by lens."""

    def conclude(self, found: Mapping[str, Result]) -> None:
        """Take in the results of the lenses that it needs."""

    def taps(self, batch: Batch) -> Sequence[Tap]:
        """Taps of its own that the pass needs, for what `update` (which runs without gradients) cannot do."""
        return ()

    def update(self, call: Call, batch: Batch) -> None:
        """Take in one call, as the pass reaches it."""

    def finish(self, batch: Batch, outputs: Any) -> None:
        """Take in what is known only after the pass."""

    def sums(self, name: str, *shape: int) -> None:
        """Declare a state that adds up over batches and processes."""
        self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def described(self) -> str:
        """Name, settings and shapes of the states: what must be equal for kept states to go on from."""
        plain = {k: v for k, v in vars(self).items() if isinstance(v, str | int | float | tuple) and k[0] != "_"}
        settings = {k: repr(v) for k, v in plain.items() if k not in ("bound", "sites", "training")}
        return f"{self.name} {sorted(settings.items())} {sorted((k, list(v.shape)) for k, v in self.states().items())}"

    def states(self) -> dict[str, Tensor]:
        """All states by name, to be kept, put back or written."""
        return {name: getattr(self, name) for name in self._defaults}

    def restore(self, states: Mapping[str, Tensor]) -> None:
        """Put kept states back."""
        for name in self._defaults:
            setattr(self, name, states[name].clone())
        self._computed = None
        self._update_count = max(self._update_count, 1)

    def merge_state(self, incoming_state: "dict[str, Any] | torchmetrics.Metric") -> None:
        """Add another's states; unlike the inherited method, forget what was computed before, and count its updates."""
        more = incoming_state._update_count if isinstance(incoming_state, torchmetrics.Metric) else 1
        before = int(self._update_count)
        if before == 0:
            self._update_count = 1  # the inherited method refuses to merge into a fresh metric's cache
        super().merge_state(incoming_state)
        self._computed = None
        self._update_count = before + more

    def result(self, variables: Mapping[str, Any], coordinates: Mapping[str, Any] | None = None) -> Result:
        """Wrap arrays as a result with this lens's provenance."""
        return Result(self.name, xr.Dataset(variables, coords=coordinates), self.provenance)

    def grid(self, per_site: Float[Tensor, "site head *rest"], rest: Sequence[str] = ()) -> xr.DataArray:
        """Lay [site head …] out as [stack layer head …]; a site that a stack does not have is missing.

        Heads that are left of a pruned model stand where they stood, and those that were removed are missing.
        """
        stacks = list(dict.fromkeys(site.name for site in self.sites))
        layers = 1 + max(site.layer for site in self.sites)
        out = torch.full((len(stacks), layers, *per_site.shape[1:]), torch.nan, dtype=torch.float64)
        for number, site in enumerate(self.sites):
            out[stacks.index(site.name), site.layer] = in_place(
                per_site[number].double(), self.numbers[site], self.heads
            )
        coordinates = {
            axes.STACK: stacks,
            axes.LAYER: list(range(1, layers + 1)),
            axes.HEAD: list(range(1, per_site.shape[1] + 1)),
        }
        return xr.DataArray(out.numpy(), dims=(*axes.PER_HEAD, *rest), coords=coordinates)


def in_place(cells: Float[Tensor, "head *rest"], numbers: Sequence[int], heads: int) -> Float[Tensor, "head *rest"]:
    """The cells of the heads that a site has, moved to their original numbers; rows beyond `heads` stay."""
    if len(cells) < heads or tuple(numbers) == tuple(range(heads)):
        return cells
    out = cells.clone()
    out[:heads] = torch.nan
    out[list(numbers)] = cells[: len(numbers)]
    return out
