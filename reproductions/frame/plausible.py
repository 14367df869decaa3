"""How plausible a map over words is, on the test texts in which people marked words: what two reproductions share."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lorgnette.lens.rationales import plausibility as maths
from lorgnette.texts import Example, corpus

_HALF = 0.5  # a word whose rescaled weight is at least this is taken for marked


@lru_cache(maxsize=4)
def marked_examples(name: str, data: str | None, limit: int | None) -> tuple[Example, ...]:
    """The test texts in which people marked at least one word."""
    test = corpus(name, split="test", data=data, limit=limit)
    return tuple(example for example in test if example.rationale is not None and any(example.rationale))


def measured(words: Sequence[Tensor], examples: Sequence[Example], draws: int) -> dict[str, Any]:
    """Pooled and per-instance numbers over all texts and over each part of the test set that has a name."""
    marks = [torch.tensor(example.rationale) >= _HALF for example in examples]
    found = {"all": _group(words, marks, draws)}
    parts: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        if "part" in example.extra:
            parts.setdefault(str(example.extra["part"]), []).append(number)
    for part, members in parts.items():
        found[part] = _group([words[i] for i in members], [marks[i] for i in members], 0)
    return found


def _group(words: Sequence[Tensor], marks: Sequence[Tensor], draws: int) -> dict[str, Any]:
    scaled = [maths.rescaled(one) for one in words]
    scores, gold = torch.cat(scaled), torch.cat(list(marks))
    mixed = [number for number, one in enumerate(marks) if not bool(one.all())]  # the others have no ROC
    each = list(zip(scaled, marks, strict=True))
    out: dict[str, Any] = {
        "texts": len(words),
        "words": len(gold),
        "marked": gold.double().mean().item(),
        # Of shares; a map of cosines has no entropy.
        "entropy": _mean([maths.normalised_row_entropy(one) for one in words])
        if all(bool((one >= 0).all()) for one in words)
        else None,
        "pooled": {
            "auprc": maths.average_precision(scores, gold).item(),
            "auroc": maths.roc_area(scores, gold).item(),
            "iou": maths.overlap(scores >= _HALF, gold).item(),
        },
        "per_instance": {
            "auprc": _mean([maths.precision_recall_area(a, b) for a, b in each]),
            "average_precision": _mean([maths.average_precision(a, b) for a, b in each]),
            "auroc": _mean([maths.roc_area(*each[number]) for number in mixed]),
            "iou": _mean([maths.overlap(a >= _HALF, b) for a, b in each]),
        },
        "texts_with_unmarked_words": len(mixed),
    }
    if draws:
        out["draws"] = _draws(scores, gold, [len(one) for one in words], draws)
    return out


def _draws(scores: Tensor, gold: Tensor, lengths: Sequence[int], draws: int) -> dict[str, list[float]]:
    """Pooled numbers of a bootstrap over texts; the draws are the same for every model on the same texts."""
    counts = maths.drawn(len(lengths), draws, seed=0)
    found: dict[str, list[float]] = {"auprc": [], "auroc": []}
    for some in counts.split(20):
        weight = some.double().repeat_interleave(torch.tensor(lengths), dim=1)
        found["auprc"] += [round(x, 5) for x in maths.average_precision(scores, gold, weight).tolist()]
        found["auroc"] += [round(x, 5) for x in maths.roc_area(scores, gold, weight).tolist()]
    return found


def _mean(values: list[Tensor]) -> float | None:
    return torch.stack(values).double().mean().item() if values else None
