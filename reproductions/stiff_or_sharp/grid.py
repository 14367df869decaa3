"""The cells: one layer of attention, with and without an entropy penalty, its values free, held or stiffened."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings

CORPORA = ("hatexplain", "yelphat", "esnli")
STRENGTH = {"hatexplain": 0.1, "yelphat": 0.1, "esnli": 0.03}
"""λ of the entropy penalty: .1 as published; on e-SNLI two of five runs at .1 are at chance (fosse2023)."""
STEADY = {"hatexplain": 0.29, "yelphat": 0.34, "esnli": 0.37}
"""SIM of the values without a penalty, mean of five seeds in fosse2023: where it is held."""
STIFF = 0.25
"""How much more it is where the values are stiffened: about what the published penalty does (.18, .19, .42)."""
HOLD = 10.0
"""Weight of (SIM − target)²: a gap of .05 costs .025 of the loss."""
ARMS: Mapping[str, tuple[bool, float | None]] = {
    "plain": (False, None),
    "sharp": (True, None),
    "held": (False, 0.0),
    "sharp-held": (True, 0.0),
    "stiff": (False, STIFF),
}
"""Arm → whether attention is sharpened, and how far from STEADY the values are held (None: not at all)."""
GAUGED = ("plain", "sharp", "held", "stiff")
"""The arms whose SIM is also measured less the constant that is free in keys and values."""
SIZE: Mapping[str, Any] = {"epochs": 50, "patience": 5, "batch_size": 64, "max_length": 400}
SIZE = {**SIZE, "limit": None, "test_limit": None, "embeddings": "glove", "width": 100, "layers": 1}
QUICK = {"epochs": 2, "limit": 600, "test_limit": 150}


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Seed by seed, so that what there is after any time can be paired."""
    corpora, seeds = (CORPORA[:1], settings.seeds[:2]) if settings.quick else (CORPORA, settings.seeds)
    changes = QUICK if settings.quick else {}
    runs = dict(_cell(corpus, arm, seed, changes) for seed in seeds for corpus in corpora for arm in ARMS)
    return runs | dict(_gauge(corpus, arm, seed, changes) for corpus in corpora for seed in seeds for arm in GAUGED)


def _gauge(corpus: str, arm: str, seed: int, changes: Mapping[str, Any]) -> tuple[str, Cell]:
    """The same training once more; the first runs did not keep what SIM less the free constant needs."""
    key, cell = _cell(corpus, arm, seed, changes)
    function, labels = "reproductions.stiff_or_sharp.measure:trained_for_gauge", {**cell.labels, "part": "gauge"}
    return f"gauge-{key}", Cell(function, cell.arguments, labels)


def _cell(corpus: str, arm: str, seed: int, changes: Mapping[str, Any]) -> tuple[str, Cell]:
    sharp, apart = ARMS[arm]
    target = None if apart is None else round(STEADY[corpus] + apart, 6)
    arguments = {"corpus": corpus, "seed": seed, "strength": STRENGTH[corpus] if sharp else 0.0, "target": target}
    arguments |= {"hold": 0.0 if target is None else HOLD, **SIZE, **changes}
    labels = {"part": "arms", "corpus": corpus, "arm": arm, "seed": seed}
    return f"{corpus}-{arm}-seed{seed}", Cell("reproductions.stiff_or_sharp.measure:trained", arguments, labels)


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Tokenises each corpus once."""
    from reproductions.fosse2023.attention.measure import prepare_texts

    for arguments in {cell.labels["corpus"]: cell.arguments for cell in waiting.values()}.values():
        prepare_texts({name: value for name, value in arguments.items() if name not in ("target", "hold")}, machine)
