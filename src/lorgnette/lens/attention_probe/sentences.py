"""A bounded sample of sentences with the attention of all heads, as states that merge."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.lens.attention_probe.probe import Sentences
from lorgnette.lens.base import Lens
from lorgnette.statistics.hash_sample import Column, HashSample
from lorgnette.syntax.attachment import UNKNOWN
from lorgnette.syntax.gold_trees import Sentence
from lorgnette.texts.example import Example


@dataclass(frozen=True)
class SampledSentence:
    """One sentence: what its words give each other and the tokens around them, its gold tree, its words' vectors."""

    late: bool
    between: Float[Tensor, "head word word2"]
    special: Float[Tensor, "head two word"]
    sentence: Sentence
    vectors: list[int]


class SentenceSample:
    """Keeps the `size` texts of smallest key: attention (half precision), gold heads, punctuation, rows of vectors."""

    def __init__(self, lens: Lens, heads: int, size: int) -> None:
        self.heads = heads
        columns = {
            "late": Column(dtype=torch.bool),
            "attention": Column(dtype=torch.float16, ragged=True),
            "marks": Column((3,), torch.int64, ragged=True),
        }
        self.sample: HashSample = HashSample(lens, "sentences", columns, size=size)

    @property
    def count(self) -> int:
        return len(self.sample.rows())

    def add(self, keys: list[int], sentences: Sequence["SampledSentence"]) -> None:
        """Add the sentences of a batch to the sample."""
        flat = [torch.cat([s.between.flatten(1), s.special.flatten(1)], -1).flatten() for s in sentences]
        marks = [np.stack([s.sentence.gold, s.sentence.punctuation, s.vectors], -1) for s in sentences]
        self.sample.add(
            torch.tensor(keys),
            late=torch.tensor([s.late for s in sentences]),
            attention=flat,
            marks=[torch.from_numpy(rows.astype(np.int64)) for rows in marks],
        )

    def parts(self, batch: int, table: np.ndarray) -> tuple[list, list]:
        """(development, held-out) batches of texts of similar length, each with its sentences; the order is fixed."""
        rows = self.sample.rows()
        pieces = list(zip(rows.pieces("attention"), rows.pieces("marks"), strict=True))
        out = []
        for late in (False, True):
            mine = [piece for piece, own in zip(pieces, rows["late"].tolist(), strict=True) if own == late]
            mine.sort(key=lambda piece: len(piece[1]))  # stable: by key among equals
            out.append([self._batch(mine[at : at + batch], table) for at in range(0, len(mine), batch)])
        return out[0], out[1]

    def _batch(self, pieces: list[tuple[Tensor, Tensor]], table: np.ndarray) -> tuple[Sentences, list[Sentence]]:
        lengths = [len(marks) for _, marks in pieces]
        longest, texts = max(lengths), len(pieces)
        attention = torch.zeros(texts, self.heads, longest, longest, dtype=torch.float64)
        special = torch.zeros(texts, self.heads, 2, longest, dtype=torch.float64)
        mask = torch.zeros(texts, longest, dtype=torch.bool)
        gold = torch.full((texts, longest), -1)
        vectors = torch.zeros(texts, longest, table.shape[1], dtype=torch.float64)
        sentences = []
        for row, ((flat, marks), n) in enumerate(zip(pieces, lengths, strict=True)):
            both = flat.double().view(self.heads, n * (n + 2))
            attention[row, :, :n, :n] = both[:, : n * n].view(self.heads, n, n)
            special[row, :, :, :n] = both[:, n * n :].view(self.heads, 2, n)
            mask[row, :n] = True
            heads = marks[:, 0]
            gold[row, :n] = torch.where(heads == UNKNOWN, -1, torch.where(heads == -1, longest, heads))
            vectors[row, :n] = torch.from_numpy(table[marks[:, 2].numpy()]).double()
            known = Sentence(row, Example("", ""), np.arange(n), heads.numpy(), marks[:, 1].numpy().astype(bool))
            sentences.append(known)
        return Sentences(attention, special, mask, gold, vectors), sentences
