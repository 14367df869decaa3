"""Word links from chosen heads of the cross-attention, and their error against gold links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.lens.alignment.formulas import links, predicted_words, word_scores
from lorgnette.lens.alignment.lens import token_scores
from lorgnette.lens.base import Lens
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate, error_of_terms
from lorgnette.subject import Subject
from lorgnette.texts.alignments import Links
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

Pairs = frozenset[tuple[int, int]]
"""(source word, target word), counted from 0."""


@dataclass(frozen=True)
class Linker:
    """How words are linked: by one head, by several together (mean of their scores), or by all heads of a layer."""

    measure: str
    """weights or norms"""
    reading: str
    """output: the rows that predict a word; input: the rows that read it"""
    heads: tuple[tuple[int, int], ...] = ()
    """(layer, head), counted from 1"""
    layer: int | None = None

    def __str__(self) -> str:
        where = " + ".join(f"{layer}.{head}" for layer, head in self.heads) or f"layer {self.layer}"
        return f"{where}, {self.measure}, {self.reading} row"


class WordLinks(Lens):
    """The links of each text by each of some linkers: every target word with the source word of the largest score.

    `found` has them by the text's id once the texts have passed.
    """

    name: ClassVar[str] = "links"
    reads = frozenset({"cpu"})

    def __init__(self, linkers: Sequence[Linker]) -> None:
        super().__init__()
        self.linkers = tuple(linkers)
        self.found: dict[str, tuple[Pairs, ...]] = {}
        self.scores: dict[int, Tensor] = {}

    def allocate(self, subject: Subject) -> None:
        self.projections: SiteWeights = SiteWeights(subject, layer_norm=False)

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site.name != "cross" or site.stack != "decoder":
            return
        scores = None
        for number, linker in enumerate(self.linkers):
            heads = [self.numbers[site].index(head - 1) for layer, head in linker.heads if layer == site.layer + 1]
            if not heads and linker.layer != site.layer + 1:
                continue
            scores = scores or token_scores(call, self.projections[site])
            each, together = scores[linker.measure]
            own = together if linker.layer is not None else each[:, heads].sum(1) / len(linker.heads)
            self.scores[number] = own + self.scores.get(number, 0.0)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        for text, example in enumerate(batch.examples):
            each = (self._links(batch, text, linker, self.scores[n][text]) for n, linker in enumerate(self.linkers))
            self.found[example.id] = tuple(each)
        self.scores = {}

    def _links(self, batch: Batch, text: int, linker: Linker, scores: Float[Tensor, "query key"]) -> Pairs:
        assert batch.target is not None
        read = batch.target.word[text]
        rows = predicted_words(read) if linker.reading == "output" else read
        words = len(batch.target.words[text]), len(batch.source.words[text])
        if not all(words):
            return frozenset()
        source, linked = links(word_scores(scores, rows, batch.source.word[text], words))
        targets = torch.arange(words[0], device=source.device)[linked]
        return frozenset(zip(source[linked].tolist(), targets.tolist(), strict=True))

    def compute(self) -> Result:
        """Nothing: the links are in `found`."""
        return self.result({})


Counts = Float[np.ndarray, "text count"]
"""|A ∩ S|, |A ∩ P|, |A| and |S| of each text."""


def counted(found: Mapping[str, Pairs], gold: Mapping[str, Links]) -> Counts:
    """What error rates are made of, text by text."""
    rows = [(len(pairs & gold[id].sure), len(pairs & gold[id].possible), len(pairs), len(gold[id].sure))
            for id, pairs in found.items()]  # fmt: skip
    return np.array(rows, dtype=float).reshape(-1, 4)


def error_rate(counts: Counts) -> Estimate:
    """AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all texts, its error over texts as that of a ratio."""
    return Estimate(_rate(counts), float(error_of_terms(_errors(counts), len(counts))), len(counts))


def error_difference(counts: Counts, other: Counts) -> Estimate:
    """The difference of two error rates on the same texts, paired by text."""
    error = error_of_terms(_errors(counts) - _errors(other), len(counts))
    return Estimate(_rate(counts) - _rate(other), float(error), len(counts))


def _rate(counts: Counts) -> float:
    hits, total = counts[:, 0] + counts[:, 1], counts[:, 2] + counts[:, 3]
    return float(1 - hits.sum() / total.sum()) if total.sum() else 0.0


def _errors(counts: Counts) -> Float[np.ndarray, " text"]:
    """What each text adds to the rate's linearised error: (d_t (1 − R) − hits_t) / Σ d."""
    hits, total = counts[:, 0] + counts[:, 1], counts[:, 2] + counts[:, 3]
    return (total * (1 - _rate(counts)) - hits) / max(total.sum(), 1)
