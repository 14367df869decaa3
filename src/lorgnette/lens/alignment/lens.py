"""Word alignment by the cross-attention of a translation model, from weights and from norms."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.contributions.head_weights import Projections, SiteWeights
from lorgnette.contributions.norms import all_heads_norms, gram, transformed_norms
from lorgnette.errors import UserError
from lorgnette.lens.alignment.formulas import agreement, alignment_error_rate, links, predicted_words, word_scores
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.places import Places
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.alignments import Links, given_alignments, links_from
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example

MEASURES = ("weights", "norms")
READINGS = ("output", "input")
SCORES = ("aer", "precision", "recall")
_DESCRIPTIONS = {
    "aer": "alignment error rate of each head's links, 1 − (|A∩S| + |A∩P|) / (|A| + |S|)",
    "precision": "precision: share of predicted links that are possible links, |A∩P| / |A|",
    "recall": "recall: share of sure links that are predicted, |A∩S| / |S|",
}


class Alignment(Lens):
    """Word alignment from cross-attention, scored against gold links (Kobayashi et al. 2020, §5).

        weights   α per head; mean over heads for a layer
        norms     α‖f(x)‖ per head; ‖Σ_h α f(x)‖ for a layer

    Scores to a source word are summed over its pieces, from a target word averaged over its rows, and the target word
    goes with the source word of the largest score; special tokens are left out. A word's rows are those that predict it
    (reading `output`, the paper's AWO) or those that read it (`input`, AWI). Rates are over all links of the corpus;
    their standard errors are over texts.

    Gold: a file or a mapping by example id, else `example.extra["alignment"]`; see `corpora.alignments`.

    What it does not tell you: what the model would say by itself. Its decoder is fed the reference translation.
    """

    name: ClassVar[str] = "alignment"
    summary: ClassVar[str] = "word alignment of a translation model's cross-attention, against gold links (AER)"
    reads = frozenset({"cpu"})

    def __init__(self, gold: str | Path | Mapping[str, object] | None = None, first: Literal[0, 1] = 0) -> None:
        super().__init__()
        self.gold: dict[str, Links] | None = None if gold is None else given_alignments(gold, first=first)

    def allocate(self, subject: Subject) -> None:
        if not any(site.name == "cross" and site.stack == "decoder" for site in self.sites):
            raise UserError(
                f"{subject.name!r} is not a translation model: it has no cross-attention to align words with. "
                "Use a model such as opus-mt."
            )
        self.projections: SiteWeights = SiteWeights(subject, layer_norm=False)
        by = {axes.MEASURE: MEASURES, axes.READING: READINGS}
        cross = Places(tuple(site for site in self.sites if site.name == "cross"), self.heads, self.numbers)
        self.of_heads: Moments = Moments(self, SCORES, by, at=cross)
        scores = [f"layer_{score}" for score in SCORES]
        self.of_layers: Moments = Moments(self, scores, by, at=Places(cross.sites))

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site.name != "cross" or site.stack != "decoder":
            return
        golds = [gold_links(example, self.gold) for example in batch.examples]
        scores = token_scores(call, self.projections[site])
        judged = [
            # Heads and, behind them, the layer.
            [self._judged(batch, text, torch.cat([h[text], layer[text, None]]), gold) for h, layer in scores.values()]
            for text, gold in enumerate(golds)
        ]
        # [text head-or-layer measure reading score]
        values, counts = (
            torch.stack([torch.stack([m[which] for m in text], 1) for text in judged]) for which in (0, 1)
        )
        each = list(zip(SCORES, values.unbind(-1), counts.unbind(-1), strict=True))
        self.of_heads.add(site, **{name: (value[:, :-1], count[:, :-1]) for name, value, count in each})
        self.of_layers.add(site, **{f"layer_{name}": (value[:, -1], count[:, -1]) for name, value, count in each})

    def _judged(
        self, batch: Batch, text: int, scores: Float[Tensor, "head query key"], gold: Links
    ) -> tuple[Float[Tensor, "head reading score"], Float[Tensor, "head reading score"]]:
        """AER, precision, recall of one text for both readings, and what each is a share of."""
        assert batch.target is not None
        words = (len(batch.target.words[text]), len(batch.source.words[text]))
        sure, possible = (_matrix(part, words, batch.examples[text], scores.device) for part in
                          (gold.sure, gold.possible))  # fmt: skip
        read = batch.target.word[text]
        values, counts = [], []
        for reading in READINGS:
            rows = predicted_words(read) if reading == "output" else read
            source, linked = links(word_scores(scores, rows, batch.source.word[text], words))
            in_sure, in_possible, predicted = agreement(source, linked, sure, possible)
            total = torch.full_like(predicted, len(gold.sure))
            rates = [
                alignment_error_rate(in_sure, in_possible, predicted, len(gold.sure)),
                in_possible.double() / predicted.clamp(min=1),
                in_sure.double() / total.clamp(min=1),
            ]
            values.append(torch.stack(rates, -1))
            counts.append(torch.stack([predicted + total, predicted, total], -1).double())
        return torch.stack(values, 1), torch.stack(counts, 1)

    def compute(self) -> Result:
        """AER, precision and recall by layer, head, measure and reading; `layer_…` for all heads together."""
        variables = self.of_heads.arrays() | self.of_layers.arrays()
        of_layers = {f"layer_{score}": f"{text} (heads of a layer together)" for score, text in _DESCRIPTIONS.items()}
        return self.result(variables, descriptions=_DESCRIPTIONS | of_layers)


def token_scores(
    call: Call, maps: Projections
) -> dict[str, tuple[Float[Tensor, "text head query key"], Float[Tensor, "text query key"]]]:
    """For each of `MEASURES`, the scores of every head and of all heads of the layer together."""
    weights = call.weights.to(maps.output.dtype)
    squares = gram(call.value.to(weights), maps.products)
    return {
        "weights": (weights, weights.mean(1)),
        "norms": (weights * transformed_norms(squares)[:, :, None], all_heads_norms(weights, squares)),
    }


def gold_links(example: Example, gold: Mapping[str, Links] | None = None) -> Links:
    """The links of a text from `gold` by its id, or without it from `extra["alignment"]`."""
    if example.target is None:
        raise UserError(f"The text {example.id!r} has no reference translation to align. Give a corpus with targets.")
    if gold is not None:
        if example.id not in gold:
            raise UserError(
                f"The gold alignments have no sentence {example.id!r}; they have {_some(gold)}. Ids of "
                "examples and sentences must agree (the line number, from 1, where a corpus has no ids)."
            )
        return gold[example.id]
    if "alignment" not in example.extra:
        raise UserError(
            f"The text {example.id!r} has no gold alignment. Give Alignment(gold=FILE), or a corpus with a column "
            "'alignment'."
        )
    return links_from(example.extra["alignment"], f"text {example.id!r}")


def _matrix(
    pairs: frozenset[tuple[int, int]], words: tuple[int, int], example: Example, device: torch.device
) -> Tensor:
    """Links as [target word, source word]."""
    out = torch.zeros(words, dtype=torch.bool, device=device)
    for source, target in pairs:
        if source >= words[1] or target >= words[0]:
            raise UserError(
                f"The gold alignment of {example.id!r} links source word {source} with target word {target} (from 0), "
                f"but the texts have {words[1]} and {words[0]} words. Are they tokenised as the gold file expects?"
            )
        out[target, source] = True
    return out


def _some(gold: Mapping[str, Links]) -> str:
    keys = list(gold)
    return f"{', '.join(map(repr, keys[:3]))}{' …' if len(keys) > 3 else ''}"
