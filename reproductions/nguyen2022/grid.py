"""The cells of Nguyen et al. 2022: how sharp attention is made, on which corpus, from which vectors, by which seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings
from reproductions.frame.wide_vectors import NAME as WIDE

FUNCTION = "reproductions.nguyen2022.measure:trained"
STRENGTHS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.08, 0.1, 1.0)
"""The table of e-SNLI ends at .1; HateXplain's at .9 and YelpHat's at 1."""
TABLED = 0.1
CORPORA = ("hatexplain", "yelphat", "esnli")
VECTORS = {"glove-100": 100, "random-300": 300}
"""Name → width, also of the LSTM per direction. The 300-d GloVe of the paper is not at hand: see `PUBLISHED`."""
_FIRST = (0.0, 0.02, 0.1, 0.01, 1.0)  # where the shape shows


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
PUBLISHED = Size(vectors={WIDE: 300})
"""With --published: GloVe as the authors have it, and the released files of e-SNLI (`RELEASED`)."""
RELEASED = {"esnli": "esnli_full"}


def size_of(settings: Settings) -> Size:
    return PUBLISHED if settings.published else QUICK if settings.quick else FULL


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Every point of the curves for every seed; those where the shape shows come first."""
    size = size_of(settings)
    strengths = sorted(size.strengths, key=lambda one: _FIRST.index(one) if one in _FIRST else len(_FIRST))
    cells = {}
    for vectors, strength, corpus, seed in product(size.vectors, strengths, size.corpora, settings.seeds):
        labels = {"corpus": corpus, "vectors": vectors, "strength": strength, "seed": seed}
        read = RELEASED.get(corpus, corpus) if settings.published else corpus
        source = vectors if vectors == WIDE else vectors.split("-")[0]
        arguments = {"corpus": read, "strength": strength, "width": size.vectors[vectors]}
        arguments |= {"embeddings": source, "seed": seed, "epochs": size.epochs}
        arguments |= {"patience": size.patience, "batch_size": size.batch_size, "max_length": size.max_length}
        arguments |= {"limit": size.limit, "test_limit": size.test_limit, "draws": size.draws}
        cells[f"{corpus}-{vectors}-lambda{strength:g}-seed{seed}"] = Cell(FUNCTION, arguments, labels)
    return cells


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Tokenises each corpus once for all cells."""
    from reproductions.nguyen2022.measure import prepare_texts

    first = {cell.arguments["corpus"]: cell.arguments for cell in reversed(waiting.values())}
    for arguments in first.values():
        prepare_texts(arguments, machine)
