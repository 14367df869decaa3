"""Plausibility: do the words with high scores look like those that people marked?

Scores and marks are per token; `weight` counts a token several times or not at all (a text drawn again, or not, by a
bootstrap). Everything is computed in float64, ties are one threshold.

Nguyen et al. 2022 put the tokens of all texts together (*pooled*); ERASER (DeYoung et al. 2020) takes the mean over
texts (*per instance*). The two are not comparable.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.statistics.entropy import entropy, normalised_entropy

Scores = Float[Tensor, " token"]
Marks = Bool[Tensor, " token"]
Weights = Float[Tensor, "*draw token"]


def rescaled(scores: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
    """(a − min a) / (max a − min a) within one text: 0 for its least word, 1 for its first; zeros if all are equal.

    It makes texts of different length comparable, and hides how flat a map was.
    """
    low, high = scores.aminmax()
    return (scores - low) / (high - low) if high > low else torch.zeros_like(scores)


def average_precision(scores: Scores, marks: Marks, weight: Weights | None = None) -> Float[Tensor, "*draw"]:
    """AP = Σ_k (R_k − R_{k−1}) P_k over the thresholds, the highest first; NaN without a marked token.

    The share of marked tokens is what scores without any information reach.
    """
    hits, taken = _cumulated(scores, marks, weight)
    precision = hits / taken.clamp(min=1e-300)
    recall = hits / hits[..., -1:]
    gained = torch.diff(recall, dim=-1, prepend=torch.zeros_like(recall[..., :1]))
    return (gained * precision).sum(-1)


def precision_recall_area(scores: Scores, marks: Marks, weight: Weights | None = None) -> Float[Tensor, "*draw"]:
    """The area under (recall, precision) by trapezoids, from (0, 1) on, as ERASER has it; NaN without a marked token.

    Straight lines between the points are too kind where precision falls: prefer `average_precision`.
    """
    hits, taken = _cumulated(scores, marks, weight)
    # A first token of weight 0 is not there: the curve still stands at (0, 1).
    precision = torch.where(taken > 0, hits / taken.clamp(min=1e-300), 1.0)
    recall = hits / hits[..., -1:]
    one, zero = torch.ones_like(recall[..., :1]), torch.zeros_like(recall[..., :1])
    return torch.trapezoid(torch.cat([one, precision], -1), torch.cat([zero, recall], -1), dim=-1)


def roc_area(scores: Scores, marks: Marks, weight: Weights | None = None) -> Float[Tensor, "*draw"]:
    """P(a marked token scores above an unmarked one), ties counting one half; NaN if one kind is missing.

    With few marked words it can be high while most of the first words are wrong.
    """
    hits, taken = _cumulated(scores, marks, weight)
    missed = taken - hits
    zero = torch.zeros_like(hits[..., :1])
    sensitivity = torch.cat([zero, hits / hits[..., -1:]], -1)
    fallout = torch.cat([zero, missed / missed[..., -1:]], -1)
    return torch.trapezoid(sensitivity, fallout, dim=-1)


def overlap(chosen: Marks, marks: Marks) -> Float[Tensor, ""]:
    """|chosen ∩ marked| / |chosen ∪ marked|; 1 if both are empty."""
    union = (chosen | marks).sum().double()
    return (chosen & marks).sum() / union if union > 0 else torch.ones((), dtype=torch.float64)


def chosen_scores(chosen: Marks, marks: Marks) -> Float[Tensor, " score"]:
    """Precision, recall and F1 of the chosen tokens of one text; 0 where nothing is chosen, or nothing marked.

    ERASER's token-F1 is the mean of F1 over texts (DeYoung et al. 2020, §4.1). It depends on how many are chosen.
    """
    both, taken, wanted = ((chosen & marks).sum().double(), chosen.sum().double(), marks.sum().double())
    parts = [both / taken.clamp(min=1), both / wanted.clamp(min=1), 2 * both / (taken + wanted).clamp(min=1)]
    return torch.stack(parts)


def runs(marks: Marks) -> list[tuple[int, int]]:
    """[start, end) of every run of marked tokens."""
    steps = torch.diff(marks.long(), prepend=torch.zeros(1).long(), append=torch.zeros(1).long())
    return list(zip((steps == 1).nonzero()[:, 0].tolist(), (steps == -1).nonzero()[:, 0].tolist(), strict=True))


def span_scores(chosen: Marks, marks: Marks, least: float = 0.5) -> Float[Tensor, " score"]:
    """Precision and recall of the chosen runs of one text: a run counts if |∩| / |∪| with some marked run ≥ `least`.

    ERASER's IOU-F1 is F1 of the means of both over texts (DeYoung et al. 2020, §4.1). Scores that point to single
    words of a long marked passage get nothing.
    """
    wanted, spans = runs(marks), runs(chosen)
    best = [max((_shared(one, other) for other in wanted), default=0.0) for one in spans]
    matched = sum(value >= least for value in best)
    return torch.tensor([matched / max(1, len(spans)), matched / max(1, len(wanted))], dtype=torch.float64)


def _shared(one: tuple[int, int], other: tuple[int, int]) -> float:
    both = max(0, min(one[1], other[1]) - max(one[0], other[0]))
    return both / (one[1] - one[0] + other[1] - other[0] - both)


def normalised_row_entropy(weights: Float[Tensor, " token"]) -> Float[Tensor, ""]:
    """H = −Σ a log a / log n of one row over its n tokens; 0 for n = 1 (Nguyen et al. 2022)."""
    return normalised_entropy(entropy(weights.double()), torch.tensor(len(weights)))


def drawn(texts: int, draws: int, seed: int) -> Int[Tensor, "draw text"]:
    """How often each text is in each draw of a bootstrap; the same for every map over the same texts."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(texts, (draws, texts), generator=generator)
    return torch.zeros(draws, texts, dtype=torch.long).scatter_add_(1, chosen, torch.ones_like(chosen))


def _cumulated(scores: Scores, marks: Marks, weight: Weights | None) -> tuple[Tensor, Tensor]:
    """Weight of the marked tokens, and of all, at or above each threshold, [*draw threshold]."""
    order = scores.argsort(descending=True, stable=True)
    ranked = scores[order]
    last = torch.ones_like(marks)  # the last token of each run of equal scores
    last[:-1] = ranked[1:] != ranked[:-1]
    mass = torch.ones(len(scores), dtype=torch.float64) if weight is None else weight.double()[..., order]
    mass_marked = (mass * marks[order]).cumsum(-1)[..., last]
    return mass_marked, mass.cumsum(-1)[..., last]
