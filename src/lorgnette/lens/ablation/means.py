"""The means that heads are replaced by."""

from typing import ClassVar

import torch
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.lens.base import Lens
from lorgnette.lens.hidden_states import VectorSizes
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch


class HeadMeans(Lens):
    """The mean output of each head before W_O, over all non-padding tokens of the corpus.

    A lens that ablates heads by their mean runs it over the corpus first. It is no finding by itself.
    """

    name: ClassVar[str] = "head_means"
    totals: Tensor
    counts: Tensor

    def allocate(self, subject: Subject) -> None:
        self.width: int = VectorSizes.of(subject).dim
        self.sums("totals", len(self.sites), self.heads, self.width)
        self.sums("counts", len(self.sites))

    def update(self, call: Call, batch: Batch) -> None:
        real = batch.queries(call.site).mask.to(call.context.dtype)
        total = torch.einsum("bhqd,bq->hd", call.context, real)
        number = self.position[call.site]
        self.totals[number, : total.shape[0], : total.shape[1]] += total.to(self.totals)
        self.counts[number] += real.sum().to(self.counts)

    def compute(self) -> Result:
        mean = self.totals / self.counts.clamp(min=1)[:, None, None]
        array = self.grid(mean, {axes.DIM: None}).fillna(0.0)
        array.attrs["description"] = "output of a head before the output projection, mean over tokens"
        return self.result({"context": array})
