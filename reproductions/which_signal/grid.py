"""The cells: a model on a corpus, with other texts (and another fine-tuning, where there is one) for each seed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Settings

LENSES = (
    "weights",
    "norms:contribution=true,sample=0",
    "sinks",
    "circuits",
    "relevance",
    "gradients",
    "effects:total=false",
    "importance",
)
"""Where the signals come from; those of `gating` are fitted once more."""
SHARES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Size:
    """How much of it is run: texts to rank the heads on, to fit gates, to remove heads on, and to fine-tune with."""

    ranking: int = 128
    gating: int = 256
    test: int = 1000
    controls: int = 20
    train: int = 6000
    epochs: int = 3
    translation_epochs: int = 8
    gate_steps: int = 60


FULL = Size()
LANGUAGE = replace(FULL, ranking=64, gating=192, test=128)
"""Paragraphs for a language model: each has a hundred predictions or so, and a pass costs a hundred times as much."""
QUICK = Size(ranking=12, gating=24, test=16, controls=3, train=200, epochs=1, translation_epochs=1, gate_steps=10)
PLACES = (
    ("smollm2-135m", "wikitext2", "language"),
    ("opus-mt-en-fr", "multi30k:en-fr", "translation"),
    ("marian-small", "multi30k:en-fr", "translation"),
    ("minilm", "sst2", "classifier"),
    ("minilm", "hatexplain", "classifier"),
    ("e5-small", "sst2", "classifier"),
    ("e5-small", "hatexplain", "classifier"),
)
"""Model, corpus and task. Classifiers are fine-tuned here, and marian-small is trained; the others are as they come."""
QUICK_PLACES = (("minilm", "sst2", "classifier"),)


def size_of(settings: Settings) -> Size:
    return QUICK if settings.quick else FULL


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Every model on its corpus, for every seed."""
    size, cells = size_of(settings), {}
    for seed in settings.seeds:
        for model, corpus, task in QUICK_PLACES if settings.quick else PLACES:
            own = LANGUAGE if task == "language" else size
            arguments = {"model": model, "corpus": corpus, "task": task, "seed": seed, **vars(own)}
            arguments |= {"lenses": list(LENSES), "shares": list(SHARES)}
            name = corpus.partition(":")[0]
            labels = {"model": model, "corpus": name, "task": task, "seed": seed}
            cells[f"{model}-{name}-seed{seed}"] = Cell("reproductions.which_signal.measure:measured", arguments, labels)
    return cells
