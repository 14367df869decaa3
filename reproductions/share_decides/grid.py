"""The cells: a model on a corpus, with other texts (and another fine-tuning, where there is one) for each seed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Settings

SIGNALS = ("gradient", "facilitation", "output_length")
SHARES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Size:
    """How many texts fine-tune a classifier, fit gates, rank heads and are judged on, and how long gates are fitted."""

    train: int = 800
    epochs: int = 2
    words: int = 40
    """A text of IMDB or YelpHat is cut after so many."""
    ranking: int = 96
    gating: int = 128
    gate_steps: int = 48
    gate_seeds: int = 1
    test: int = 200
    controls: int = 5


FULL = Size()
TRANSLATION = replace(FULL, test=64)
"""Three stacks, each with sets of its own, and a vocabulary of 59,514."""
QUICK = Size(train=64, epochs=1, words=12, ranking=8, gating=16, gate_steps=3, gate_seeds=1, test=12, controls=2)
PLACES = (
    ("minilm", "imdb"),
    ("opus-mt-fr-en", "multi30k:fr-en"),
    ("minilm", "esnli"),
    ("e5-small", "imdb"),
    ("minilm", "yelphat"),
    ("e5-small", "esnli"),
    ("e5-small", "yelphat"),
)
"""Model and corpus: none was in which_signal, though two sets of pretrained weights were."""
QUICK_PLACES = (("minilm", "imdb"),)


def size_of(corpus: str, quick: bool) -> Size:
    if quick:
        return QUICK
    return TRANSLATION if ":" in corpus else FULL


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Seed by seed, so that what there is after any time has as many models as can be."""
    cells = {}
    for seed in settings.seeds:
        for model, corpus in QUICK_PLACES if settings.quick else PLACES:
            size = asdict(size_of(corpus, settings.quick))
            arguments = {"model": model, "corpus": corpus, "seed": seed, **size, "shares": list(SHARES)}
            name = corpus.partition(":")[0]
            labels = {"model": model, "corpus": name, "seed": seed}
            cells[f"{model}-{name}-seed{seed}"] = Cell(
                "reproductions.share_decides.measure:measured", arguments, labels
            )
    return cells
