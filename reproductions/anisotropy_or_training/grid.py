"""The cells: a pure-attention model by its word vectors, step size, warm-up and depth, for every corpus and seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings

CORPORA = ("yelphat", "hatexplain")
"""Those of which five layers were published; e-SNLI has at most two there."""
WIDTHS = {"glove-100": 100, "padded-300": 300, "random-50": 50, "random-100": 100, "random-300": 300, "random-600": 600}
"""Word vectors → width. Padded: GloVe of width 100 and 200 zeros, so that every norm and every cosine stays."""
SLOW, PAPER, FAST = 3e-4, 1e-3, 3e-3
WARM = 200
DEEP = 5


@dataclass(frozen=True)
class Setting:
    """How a model is made and trained; `warmup` in steps, over which the step size grows to `rate`."""

    vectors: str
    rate: float = PAPER
    warmup: int = 0
    layers: int = DEEP

    @property
    def name(self) -> str:
        return f"{self.vectors}-rate{self.rate:g}-warmup{self.warmup}-L{self.layers}"


CORE = (
    Setting("glove-100"),
    Setting("padded-300"),
    Setting("random-100"),
    Setting("random-300"),
    Setting("random-300", SLOW),
    Setting("padded-300", SLOW),
    Setting("random-100", FAST),
    Setting("random-100", SLOW),
)
"""What the claims rest on: two widths as the paper trains, wide models trained more gently, narrow ones less gently."""
MORE = (
    Setting("random-50"),
    Setting("random-600"),
    Setting("random-300", PAPER, WARM),
    Setting("padded-300", PAPER, WARM),
    Setting("random-600", SLOW),
    Setting("random-300", FAST),
)
"""More widths, and a warm-up: on the corpus whose runs are short."""
FLAT = (Setting("padded-300", layers=1),)
"""On the corpus of which H of one layer was published."""
SETTINGS = {"yelphat": (*CORE, *MORE), "hatexplain": (*CORE, *FLAT)}
SIZE: Mapping[str, Any] = {"epochs": 50, "patience": 5, "batch_size": 64, "max_length": 400}
SIZE = {**SIZE, "limit": None, "test_limit": None}
QUICK = {"epochs": 2, "limit": 300, "test_limit": 60}


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """What the claims rest on comes first, seed by seed, so that what there is after any time is even."""
    if settings.quick:
        some = (Setting("glove-100"), Setting("random-100"), Setting("random-100", FAST))  # the narrow ones are quick
        return dict(_cell("yelphat", one, seed, QUICK) for seed in settings.seeds[:2] for one in some)
    first = [(corpus, one, seed) for seed in settings.seeds for corpus in reversed(CORPORA) for one in CORE]
    last = [("hatexplain", one, seed) for seed in settings.seeds for one in FLAT]
    last += [("yelphat", one, seed) for seed in settings.seeds for one in MORE]
    return dict(_cell(*run, {}) for run in first + last)


def _cell(corpus: str, setting: Setting, seed: int, changes: Mapping[str, Any]) -> tuple[str, Cell]:
    where = {"corpus": corpus, **vars(setting), "seed": seed}
    function = "reproductions.anisotropy_or_training.measure:trained"
    return f"{corpus}-{setting.name}-seed{seed}", Cell(function, {**where, **SIZE, **changes}, where)


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Tokenises each corpus once."""
    from reproductions.anisotropy_or_training.measure import settings_of
    from reproductions.frame.tokens import store

    for arguments in {cell.labels["corpus"]: cell.arguments for cell in waiting.values()}.values():
        settings = settings_of(machine=machine, **arguments)
        store(settings.replace(model="mean", overrides={}, embeddings="random"), machine.scratch)
