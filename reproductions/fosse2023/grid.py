"""The trainings of pure-attention models: how deep, how sharp, on which corpus, from which vectors, by which seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from reproductions.frame.cells import Cell

FUNCTION = "reproductions.fosse2023.cell:trained"
CORPORA = ("hatexplain", "yelphat", "esnli")
DEPTHS = (1, 2, 3, 4, 5)
STRENGTHS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
WIDTHS = {"glove-100": 100, "random-300": 300, "random-100": 100}
"""Vectors → width. The 300-d GloVe of the paper is not at hand."""
FEW = 3
"""Seeds of what is there to explain a difference."""
MAIN, OTHERS = "glove-100", ("random-300", "random-100")
OTHER_POINTS = ((1, 0.0), (2, 0.0), (5, 0.0))
"""(layers, λ) from random vectors, with the first three seeds: is it GloVe or the width that makes the difference?"""
LATE: Mapping[str, Any] = {"keep_last": True, "epochs": 30, "patience": 30}
"""Weights that are not the best by validation loss: those after 30 epochs."""
LATE_POINTS = ((1, 0.0), (1, 1e-3), (5, 0.0))
"""(layers, λ) of these, with the first three seeds: is it a matter of how long one trains?"""


@dataclass(frozen=True)
class Size:
    """How much of it is run."""

    epochs: int = 50
    patience: int = 5
    batch_size: int = 64
    max_length: int = 400  # the longest text has 200 words, which are more tokens
    depths: Sequence[int] = DEPTHS
    strengths: Sequence[float] = STRENGTHS
    corpora: Sequence[str] = CORPORA
    vectors: Mapping[str, int] = field(default_factory=lambda: dict(WIDTHS))
    late: bool = True
    limit: int | None = None
    test_limit: int | None = None
    seeds: int | None = None  # at most so many of those asked for


FULL = Size()
QUICK = Size(
    epochs=4,
    depths=(1, 2),
    strengths=(0.0, 1e-1),
    corpora=("hatexplain",),
    vectors={"glove-100": 100},
    late=False,
    limit=2500,
    test_limit=500,
    seeds=2,
)


@dataclass(frozen=True)
class Run:
    """A training: one layer with a penalty, or several without; the best weights, or late ones."""

    corpus: str
    vectors: str
    layers: int
    strength: float
    seed: int
    late: bool = False

    @property
    def key(self) -> str:
        late = "-late" if self.late else ""
        return f"attention-{self.corpus}-{self.vectors}-L{self.layers}-lambda{self.strength:g}{late}-seed{self.seed}"

    def cell(self, size: Size) -> Cell:
        arguments: dict[str, Any] = {
            "corpus": self.corpus,
            "layers": self.layers,
            "strength": self.strength,
            "seed": self.seed,
        }
        arguments |= {"embeddings": self.vectors.split("-")[0], "width": size.vectors[self.vectors]}
        arguments |= {"epochs": size.epochs, "patience": size.patience, "batch_size": size.batch_size}
        arguments |= {"max_length": size.max_length, "limit": size.limit, "test_limit": size.test_limit}
        return Cell(FUNCTION, {**arguments, **(LATE if self.late else {})})


def points(size: Size) -> list[tuple[int, float]]:
    """(layers, λ): all depths without a penalty, and one layer with each."""
    deep = [(layers, 0.0) for layers in size.depths]
    return deep + [(1, strength) for strength in size.strengths if strength > 0]


def runs(size: Size, seeds: Sequence[int]) -> list[Run]:
    """Seed by seed, so that what is there after any time is as even as can be; what only explains comes last."""
    seeds = list(seeds)[: size.seeds]
    out = [
        Run(corpus, MAIN, layers, strength, seed)
        for seed, (layers, strength), corpus in product(seeds, points(size), size.corpora)
    ]
    if size.late:
        late = product(seeds[:FEW], LATE_POINTS, size.corpora)
        out += [Run(corpus, MAIN, layers, strength, seed, late=True) for seed, (layers, strength), corpus in late]
    few = product(seeds[:FEW], (name for name in OTHERS if name in size.vectors), OTHER_POINTS, size.corpora)
    return out + [Run(corpus, vectors, *point, seed) for seed, vectors, point, corpus in few]


def cells(size: Size, seeds: Sequence[int]) -> dict[str, Cell]:
    return {run.key: run.cell(size) for run in runs(size, seeds)}
