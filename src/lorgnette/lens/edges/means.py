"""The mean output of every writer over a corpus, which replaces it when it is ablated."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.explaining.edges import EdgeStream, Means
from lorgnette.explaining.stream import Writer, in_memory, writers
from lorgnette.lens.base import Lens
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput


class WriterMeans(Lens):
    """What each part writes to the residual stream, mean over all non-padding tokens of the corpus.

    The lens `edges` runs it over the corpus first. It is no finding by itself.
    """

    name: ClassVar[str] = "writer_means"
    reads = frozenset({"cpu"})
    totals: Tensor
    counts: Tensor

    def allocate(self, subject: Subject) -> None:
        self.writers: tuple[Writer, ...] = writers(subject)
        self.width: int = _width(subject)
        self.sums("totals", len(self.writers), self.width)
        self.sums("counts", len(self.writers))

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        for _, some in in_memory(self.subject, batch):
            stream = EdgeStream(self.subject, some)
            for piece in stream.pieces:
                stack = "encoder" if piece.writers[0].stack == "encoder" else "decoder"
                mask = some.queries(Site(stack, "self", 0)).mask
                amount = piece.amount.reshape(len(piece.writers), len(some), -1, piece.amount.shape[-1])
                total = torch.einsum("wbtm,bt->wm", amount.to(self.totals), mask.to(self.totals))
                places = [stream.place[writer] for writer in piece.writers]
                self.totals[places, : total.shape[1]] += total
                self.counts[places] += mask.sum().to(self.counts)

    def compute(self) -> Result:
        mean = self.totals / self.counts.clamp(min=1)[:, None]
        names = [str(writer) for writer in self.writers]
        values = {"written": ((axes.WRITER, axes.MODEL), mean.cpu().double().numpy())}
        return self.result(values, {axes.WRITER: names})


def _width(subject: Subject) -> int:
    """The residual stream is as wide as what W_O gives."""
    widths = [
        int(site.output_weights(gated=True)[0].shape[-1])
        for site in subject.text_attention
        if site.site.stack != "pooler"
    ]
    return max([*widths, int(subject.model.get_input_embeddings().weight.shape[-1])])


def means_in(results: Mapping[str, Result], subject: Subject) -> Means:
    """The mean output of each writer, from the results that a lens takes."""
    array = results[WriterMeans.name].data["written"]
    return {writer: torch.tensor(array.sel({axes.WRITER: str(writer)}).values) for writer in writers(subject)}
