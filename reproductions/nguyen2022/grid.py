"""The cells of Nguyen et al. 2022: how sharp attention is made, on which corpus, from which vectors, by which seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from reproductions.frame.cells import Cell

FUNCTION = "reproductions.nguyen2022.cell:trained"
STRENGTHS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.08, 0.1)
CORPORA = ("hatexplain", "yelphat", "esnli")
VECTORS = {"glove-100": 100, "random-300": 300}
"""Name → width, also of the LSTM per direction. The 300-d GloVe of the paper is not at hand."""
_FIRST = (0.0, 0.02, 0.1, 0.01)  # where the shape shows


@dataclass(frozen=True)
class Size:
    """How much of it is run."""

    epochs: int = 30
    patience: int = 5
    batch_size: int = 128
    max_length: int = 400  # the longest text has 200 words, which are more tokens
    strengths: Sequence[float] = STRENGTHS
    corpora: Sequence[str] = CORPORA
    vectors: Mapping[str, int] = field(default_factory=lambda: dict(VECTORS))
    limit: int | None = None
    test_limit: int | None = None
    draws: int = 200


FULL = Size()
QUICK = Size(
    epochs=6,
    batch_size=64,
    strengths=(0.0, 0.02, 0.1),
    corpora=("hatexplain",),
    vectors={"glove-100": 100},
    limit=3000,
    test_limit=800,
)


@dataclass(frozen=True)
class Run:
    """A point of the curves, for one seed."""

    corpus: str
    vectors: str
    strength: float
    seed: int

    @property
    def key(self) -> str:
        return f"{self.corpus}-{self.vectors}-lambda{self.strength:g}-seed{self.seed}"

    def cell(self, size: Size) -> Cell:
        arguments = {"corpus": self.corpus, "strength": self.strength, "width": size.vectors[self.vectors]}
        arguments |= {"embeddings": self.vectors.split("-")[0], "seed": self.seed, "epochs": size.epochs}
        arguments |= {"patience": size.patience, "batch_size": size.batch_size, "max_length": size.max_length}
        arguments |= {"limit": size.limit, "test_limit": size.test_limit, "draws": size.draws}
        return Cell(FUNCTION, arguments)


def runs(size: Size, seeds: Sequence[int]) -> list[Run]:
    """All points; those where the shape shows come first."""
    order = sorted(size.strengths, key=lambda one: _FIRST.index(one) if one in _FIRST else len(_FIRST))
    grid = product(size.vectors, order, size.corpora, seeds)
    return [Run(corpus, vectors, strength, seed) for vectors, strength, corpus, seed in grid]


def cells(size: Size, seeds: Sequence[int]) -> dict[str, Cell]:
    return {run.key: run.cell(size) for run in runs(size, seeds)}
