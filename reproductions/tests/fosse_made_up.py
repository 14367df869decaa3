"""Results of Fosse et al. 2023 in place of trainings: encoders, classes and tags from vectors that are planted."""

import math
from typing import Any

import torch

from reproductions.fosse2023.classes.measure import _spread, direction_numbers
from reproductions.fosse2023.cones import cone_numbers

LABELS = {
    "esnli": ("entailment", "neutral", "contradiction"),
    "hatexplain": ("normal", "hatespeech", "offensive"),
    "yelphat": ("negative", "positive"),
}


def cone(angle: float, classes: int, seed: int, *, items: int = 30, wrong: int = 4) -> tuple[Any, Any, Any]:
    """Vectors around axes at this angle with each other; the last few of each class are far off, and wrong."""
    draw = torch.Generator().manual_seed(seed)
    gram = torch.full((classes, classes), math.cos(angle), dtype=torch.float64).fill_diagonal_(1.0)
    axes = torch.zeros(classes, 24, dtype=torch.float64)
    values, rows = torch.linalg.eigh(gram)
    axes[:, :classes] = rows @ torch.diag(values.clamp(min=0).sqrt())
    labels = torch.arange(classes).repeat_interleave(items)
    vectors = axes[labels] + 0.05 * torch.randn(len(labels), 24, generator=draw, dtype=torch.float64)
    last = torch.arange(len(labels)) % items >= items - wrong
    vectors[last] += 0.3 * torch.randn(int(last.sum()), 24, generator=draw, dtype=torch.float64)
    return vectors, labels, torch.where(last, (labels + 1) % classes, labels)


def finetuned(corpus: str, seed: int, *, angle: float = math.pi / 2, sim: tuple[float, float] = (0.3, 0.5)) -> Any:
    """An encoder: cones at an angle after training, none before, SIM of the last layer before and after."""
    classes = len(LABELS[corpus])
    vectors, labels, predicted = cone(angle, classes, seed)
    noise = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ways = {how: cone_numbers(vectors, labels, predicted, classes, how=how) for how in ("random", "first")}
    counts = {"tokens_texts": 90, "tokens_left_out": 1}

    def layers(last: float) -> dict[str, Any]:
        values = [0.1, 0.2, last + 0.001 * seed]
        return {"tokens": values, "words": values, "tokens_corpus": values, "cls_corpus": values, **counts}

    return {
        "metrics": {"test": {"accuracy": 0.8 + 0.01 * seed}},
        "best": {"epoch": 3.0, "step": 30},
        "parameters": {"total": 10},
        "corpus_fingerprint": "f",
        "device": "cpu",
        "versions": {},
        "labels": list(LABELS[corpus]),
        "texts": {"train": 600, "test": 90},
        "cut": 2,
        "before": {"sim": layers(sim[0]), "cones": {"random": cone_numbers(noise, labels, labels, classes)}},
        "after": {"sim": layers(sim[1]), "cones": ways},
    }


def spread_out(classes: int, width: int, seed: int, accuracy: float) -> Any:
    """One number of classes: a simplex if there is room, else directions at random."""
    draw = torch.Generator().manual_seed(1000 * seed + classes)
    axes = torch.randn(classes, width, generator=draw, dtype=torch.float64)
    if classes <= width - 1:
        axes = torch.zeros(classes, width, dtype=torch.float64)
        axes[:, :classes] = torch.eye(classes, dtype=torch.float64) - 1 / classes
    labels = torch.arange(classes).repeat(6)
    states = axes[labels] + 0.01 * torch.randn(len(labels), width, generator=draw, dtype=torch.float64)
    right = (torch.rand(len(labels), generator=draw) < accuracy).double()
    numbers = direction_numbers(states, labels, right, classes)
    units = axes / axes.norm(dim=-1, keepdim=True)
    return {"accuracy": accuracy + 0.001 * seed, "cross_entropy": 0.1, **numbers, "weights": _spread(units)}


def tagger(seed: int, angle: float = 1.2) -> Any:
    tags = ("ADJ", "NOUN", "VERB", "X")
    vectors, labels, predicted = cone(angle, 3, seed, items=60)
    noise = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = {}
    for when, some, guess in (("before", noise, labels), ("after", vectors, predicted)):
        found[when] = {"tag_accuracy": 0.93, **cone_numbers(some, labels, guess, len(tags))}
        del found[when]["quantile"]
    counts = dict.fromkeys(("train", "dev", "test"), 100)
    none = dict.fromkeys(counts, 0)
    return {"tags": list(tags), "sentences": counts, "left_out": none, **found, "device": "cpu", "versions": {}}
