"""How often each word piece stands in the corpus: by that a word is rare."""

from typing import ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.lens.base import Lens
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.frequency import FrequencyRanks
from lorgnette.types import ModelOutput


class PieceCounts(Lens):
    """How often each word piece stands in the corpus, on either side; `roles` looks with it first."""

    name: ClassVar[str] = "piece_counts"
    reads = frozenset({"tokens", "cpu"})
    pieces: Tensor

    def allocate(self, subject: Subject) -> None:
        vocabulary = max(len(subject.tokenizer), int(getattr(subject.model.config, "vocab_size", 0) or 0))
        self.sums("pieces", 2, vocabulary)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        for side, tokens in enumerate((batch.source, batch.target)):
            if tokens is not None:
                ids = tokens.ids[tokens.mask & ~tokens.special].to(self.pieces.device)
                self.pieces[side] += torch.bincount(ids, minlength=self.pieces.shape[1])

    def compute(self) -> Result:
        counts = self.pieces.cpu().numpy().astype("int64")
        return self.result({"pieces": xr.DataArray(counts, dims=("side", "piece"))})


def rank_table(ranks: FrequencyRanks[int], size: int) -> Float[Tensor, " piece"]:
    return torch.tensor([ranks[piece] for piece in range(size)], dtype=torch.float32)
