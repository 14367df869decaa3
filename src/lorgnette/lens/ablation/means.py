"""The means that heads are replaced by."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.hidden_states import VectorSizes
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.subject.knockout import mean_outputs
from lorgnette.texts.batch import Batch

Ablation = Literal["mean", "zero"]
"""What replaces the output of an ablated head: its mean over the corpus, or zero."""
Means = Mapping[Site, Float[Tensor, "head dim"]]


class HeadMeans(Lens):
    """The mean output of each head before W_O, over all non-padding tokens of the corpus.

    A lens that ablates heads by their mean runs it over the corpus first. It is no finding by itself.
    """

    name: ClassVar[str] = "head_means"
    reads = frozenset({"cpu"})
    totals: Tensor
    counts: Tensor

    def allocate(self, subject: Subject) -> None:
        self.width: int = VectorSizes.of(subject).dim
        self.sums("totals", len(self.sites), self.heads, self.width)
        self.sums("counts", len(self.sites))

    def update(self, call: Call, batch: Batch) -> None:
        context = call.context.to(torch.promote_types(call.context.dtype, torch.float32))
        real = batch.queries(call.site).mask.to(context.dtype)
        total = torch.einsum("bhqd,bq->hd", context, real)
        number = self.position[call.site]
        self.totals[number, : total.shape[0], : total.shape[1]] += total.to(self.totals)
        self.counts[number] += real.sum().to(self.counts)

    def compute(self) -> Result:
        mean = self.totals / self.counts.clamp(min=1)[:, None, None]
        context = self.grid(mean, {axes.DIM: None}).fillna(0.0)
        about = "output of a head before the output projection, mean over tokens"
        return self.result({"context": context}, descriptions={"context": about})


def means_in(results: Mapping[str, Result], subject: Subject) -> Means:
    """The mean output of every head, from the results that a lens takes."""
    return {site: mean_outputs(results[HeadMeans.name], subject, site) for site in subject.text_sites}


def replacements(lens: Lens, ablation: str, means: Means | None) -> Means | None:
    """The replacements of the heads' outputs, None for zero; a `UserError` if the means were not measured."""
    if ablation == "mean" and means is None:
        raise UserError(
            f"The lens {lens.name!r} replaces heads by their means over the corpus, which have not been measured: use "
            "lo.look, which measures them first, or ablation='zero'."
        )
    return means
