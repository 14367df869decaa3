"""A bounded sample of sentences with the attention of all heads, as states that merge."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.corpora.example import Example
from lorgnette.lenses.attention_probe.probe import Sentences
from lorgnette.syntax.attachment import UNKNOWN
from lorgnette.syntax.gold_trees import Sentence

_KEY, _WORDS, _LATE = range(3)


class KeptSentences:
    """Keeps the `size` texts of smallest key: attention (half precision), gold heads, punctuation, rows of vectors.

    Sentences differ in length, so each state is one long row, and `index` says how long each piece of it is. Merged
    states are put behind one another; what is then too much is cut when it is next looked at.
    """

    def __init__(self, lens: Any, heads: int, size: int) -> None:
        self.lens, self.heads, self.size = lens, heads, size
        lens.add_state("index", torch.zeros(0, 3, dtype=torch.float64), dist_reduce_fx="cat")
        lens.add_state("attention", torch.zeros(0, dtype=torch.float16), dist_reduce_fx="cat")
        lens.add_state("marks", torch.zeros(0, 3, dtype=torch.int64), dist_reduce_fx="cat")
        self.new: list[tuple[list[float], Tensor, Tensor]] = []

    @property
    def count(self) -> int:
        return min(self.size, len(self.lens.index))

    def wanted(self, key: int) -> bool:
        """Whether a text would be among the smallest, as far as is known now."""
        index = self.lens.index
        return len(index) < self.size or key < float(index[:, _KEY].max())

    def add(
        self,
        key: int,
        late: bool,
        between: Float[Tensor, "head word word2"],
        special: Float[Tensor, "head two word"],
        sentence: Sentence,
        vectors: list[int],
    ) -> None:
        """Take a sentence in; `settle` ends a batch of them."""
        flat = torch.cat([between.flatten(1), special.flatten(1)], -1).flatten().to(torch.float16)
        marks = np.stack([sentence.gold, sentence.punctuation, vectors], -1)
        self.new.append(([float(key), len(sentence.gold), float(late)], flat, torch.from_numpy(marks.astype(np.int64))))

    def settle(self) -> None:
        """Join what is new with what was there, and let go of the largest keys."""
        if not self.new:
            return
        lens = self.lens
        lens.index = torch.cat([lens.index, torch.tensor([row for row, _, _ in self.new], dtype=torch.float64)])
        lens.attention = torch.cat([lens.attention, *(flat for _, flat, _ in self.new)])
        lens.marks = torch.cat([lens.marks, *(marks for _, _, marks in self.new)])
        self.new = []
        if len(lens.index) > self.size:
            keep = sorted(self._order()[: self.size])
            pieces = [self._piece(number) for number in keep]
            lens.index = lens.index[keep]
            lens.attention = torch.cat([flat for flat, _ in pieces])
            lens.marks = torch.cat([marks for _, marks in pieces])

    def _order(self) -> list[int]:
        return self.lens.index[:, _KEY].argsort(stable=True).tolist()

    def _starts(self) -> tuple[list[int], list[int]]:
        words = self.lens.index[:, _WORDS].long()
        sizes = self.heads * words * (words + 2)
        return ([0, *sizes.cumsum(0).tolist()], [0, *words.cumsum(0).tolist()])

    def _piece(self, number: int) -> tuple[Tensor, Tensor]:
        sizes, words = self._starts()
        return (
            self.lens.attention[sizes[number] : sizes[number + 1]],
            self.lens.marks[words[number] : words[number + 1]],
        )

    def parts(self, batch: int, table: np.ndarray) -> tuple[list, list]:
        """(development, held-out) batches of texts of similar length, each with its sentences; the order is fixed."""
        order = self._order()[: self.size]
        out = []
        for late in (False, True):
            mine = [number for number in order if bool(self.lens.index[number, _LATE]) == late]
            mine.sort(key=lambda number: int(self.lens.index[number, _WORDS]))  # stable: by key among equals
            out.append([self._batch(mine[at : at + batch], table) for at in range(0, len(mine), batch)])
        return out[0], out[1]

    def _batch(self, numbers: list[int], table: np.ndarray) -> tuple[Sentences, list[Sentence]]:
        lengths = [int(self.lens.index[number, _WORDS]) for number in numbers]
        longest, texts = max(lengths), len(numbers)
        attention = torch.zeros(texts, self.heads, longest, longest, dtype=torch.float64)
        special = torch.zeros(texts, self.heads, 2, longest, dtype=torch.float64)
        there = torch.zeros(texts, longest, dtype=torch.bool)
        gold = torch.full((texts, longest), -1)
        vectors = torch.zeros(texts, longest, table.shape[1], dtype=torch.float64)
        sentences = []
        for row, (number, n) in enumerate(zip(numbers, lengths, strict=True)):
            flat, marks = self._piece(number)
            both = flat.double().view(self.heads, n * (n + 2))
            attention[row, :, :n, :n] = both[:, : n * n].view(self.heads, n, n)
            special[row, :, :, :n] = both[:, n * n :].view(self.heads, 2, n)
            there[row, :n] = True
            heads = marks[:, 0]
            gold[row, :n] = torch.where(heads == UNKNOWN, -1, torch.where(heads == -1, longest, heads))
            vectors[row, :n] = torch.from_numpy(table[marks[:, 2].numpy()]).double()
            known = Sentence(row, Example("", ""), np.arange(n), heads.numpy(), marks[:, 1].numpy().astype(bool))
            sentences.append(known)
        return Sentences(attention, special, there, gold, vectors), sentences
