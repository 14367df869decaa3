"""The option `centred`: values, and keys, less their mean over the corpus, a constant that no output depends on.

docs/gauge.md says why. A lens with the option is a `CentredLens`: it needs the means first, and reads each call through
its `Centring`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.contributions.centred import CentredCall, centred
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.hidden_states import VECTORS, VectorSizes
from lorgnette.results import Result
from lorgnette.results.result import CENTRED
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch


class VectorMeans(Lens):
    """The mean query, key and value of each head, over all non-padding tokens of the corpus.

    A lens that centres values runs it over the corpus first. It is not a finding in itself.
    """

    name: ClassVar[str] = "vector_means"
    totals: Tensor
    counts: Tensor

    def allocate(self, subject: Subject) -> None:
        self.width: int = VectorSizes.of(subject).dim
        self.sums("totals", len(VECTORS), len(self.sites), self.heads, self.width)
        self.sums("counts", len(VECTORS), len(self.sites))

    def update(self, call: Call, batch: Batch) -> None:
        queries, keys = batch.queries(call.site).mask, batch.keys(call.site).mask
        number = self.position[call.site]
        vectors = ((call.query, queries), (call.scores.key, keys), (call.grouped_value, keys))
        for kind, (some, mask) in enumerate(vectors):
            wide = some.to(torch.float32 if some.device.type == "mps" else torch.float64)  # Metal has no float64
            total = torch.einsum("bgtd,bt->gd", wide, mask.to(wide.dtype))
            total = total.repeat_interleave(call.query.shape[1] // len(total), 0)  # of a group, each head has the same
            self.totals[kind, number, : total.shape[0], : total.shape[1]] += total.to(self.totals)
            self.counts[kind, number] += mask.sum().to(self.counts)

    def compute(self) -> Result:
        variables = {}
        for name, total, count in zip(VECTORS, self.totals, self.counts, strict=True):
            array = self.grid(total / count.clamp(min=1)[:, None, None], {axes.DIM: None}).fillna(0.0)
            array.attrs["description"] = f"{name} of a head, mean over tokens"
            variables[f"mean_{name}"] = array
        return self.result(variables)


class Centring:
    """What a lens with the option `centred` does to each call; nothing where the option is off."""

    def __init__(self, lens: Lens, *, on: bool) -> None:
        self.lens, self.on = lens, on
        self.means: dict[str, dict[Site, Float[Tensor, "head dim"]]] | None = None

    def needs(self) -> Sequence[Lens]:
        return (VectorMeans(),) if self.on else ()

    def take(self, results: Mapping[str, Result]) -> None:
        """The means of the corpus, for the heads that are there."""
        data, lens = results[VectorMeans.name].data, self.lens
        self.means = {name: {site: _at(data[f"mean_{name}"], site, lens.numbers[site]) for site in lens.sites}
                      for name in VECTORS}  # fmt: skip

    def __call__(self, call: Call) -> Call:
        """The call with centred values; made once for all lenses that ask."""
        return call.once("centred", lambda: CentredCall(call, self.mean("value", call.site))) if self.on else call

    def vectors(self, call: Call) -> list[Float[Tensor, "batch head _ _"]]:
        """Queries, keys and values of a call, each less its mean."""
        each = ((getattr(call, name), self.mean(name, call.site)) for name in VECTORS)
        return [centred(some, mean[:, None, : some.shape[-1]]) for some, mean in each]

    def mark(self, result: Result) -> Result:
        """The result, marked as one of centred values."""
        result.data.attrs |= {CENTRED: True} if self.on else {}
        return result

    def mean(self, name: str, site: Site) -> Float[Tensor, "head dim"]:
        """The mean of one kind of vector at one site; refused if it was not measured."""
        if self.means is None:
            raise UserError(
                f"The lens {self.lens.name!r} centres vectors on their means over the corpus, which have not been "
                "measured: use lo.look, which measures them first, or leave out centred."
            )
        return self.means[name][site]


class CentredLens(Lens):
    """A lens with the option `centred`."""

    def __init__(self, centred: bool) -> None:
        super().__init__()
        self.centred = centred
        self.centring = Centring(self, on=centred)

    def needs(self) -> Sequence[Lens]:
        return self.centring.needs()

    def take(self, results: Mapping[str, Result]) -> None:
        self.centring.take(results)


def _at(means: xr.DataArray, site: Site, heads: Sequence[int]) -> Float[Tensor, "head dim"]:
    cells = means.sel({axes.STACK: site.name, axes.LAYER: site.layer + 1}).values
    return torch.tensor(cells)[list(heads)]
