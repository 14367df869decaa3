"""The cells: for every seed, the whole model, some of its heads left, and those trained from scratch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Settings

HOME = "reproductions.heavy_lifting.measure"


@dataclass(frozen=True)
class Size:
    """How much is trained and measured. First what the workshop of voita2019 is told, then what is new here."""

    small: int = 16
    """Epochs of the whole model; then `gates` epochs with gates or without, then `tuning` steps without heads."""
    gates: int = 2
    batch: int = 256
    preset: str = "marian-small"
    pieces: int = 5000
    limit: int | None = None
    test_limit: int | None = 500
    bf16: bool = True
    tuning: int = 57
    pressure: float = 2.0
    draws: int = 10
    untrained: int = 20
    """Random sets whose loss is measured right after the cut; the first `draws` of them are trained too."""
    ranking: int = 128
    trees: int = 480


FULL = Size()
QUICK = Size(small=2, gates=3, batch=32, preset="marian-tiny", pieces=400, limit=300, test_limit=20, bf16=False,
             tuning=5, draws=2, untrained=3, ranking=20, trees=40)  # fmt: skip
LEFT = (24, 12, 36, 48)
"""Heads left of 72: a third, a sixth, half, two thirds; in the order in which they are run."""
FIRST = LEFT[:2]
"""The numbers that are run first, and also trained from scratch."""
QUICK_LEFT = (8, 4)


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """First a third and a sixth; when they are there, the same from scratch (the heads are theirs), and the others."""
    size = asdict(QUICK if settings.quick else FULL)
    left = QUICK_LEFT if settings.quick else LEFT
    first = {f"left{n}-seed{seed}": _pruned(seed, n, size) for n in left[:1] for seed in settings.seeds}
    first |= {
        f"whole-seed{seed}": Cell(f"{HOME}:whole", {"seed": seed, "sizes": size}, {"kind": "whole", "seed": seed})
        for seed in settings.seeds
    }
    first |= {f"left{n}-seed{seed}": _pruned(seed, n, size) for n in left[1:2] for seed in settings.seeds}
    if not first.keys() <= done.keys():
        return first
    second = {}
    for n in left[:2]:
        for seed in settings.seeds:
            told = {"seed": seed, "kept": done[f"left{n}-seed{seed}"]["kept"], "sizes": size}
            labels = {"kind": "scratch", "left": n, "seed": seed}
            second[f"scratch{n}-seed{seed}"] = Cell(f"{HOME}:from_scratch", told, labels)
        if n == left[0]:
            second |= {f"left{n}-seed{seed}": _pruned(seed, n, size) for n in left[2:] for seed in settings.seeds}
    return first | second


def _pruned(seed: int, left: int, size: Mapping[str, Any]) -> Cell:
    told = {"seed": seed, "left": left, "sizes": dict(size)}
    return Cell(f"{HOME}:pruned", told, {"kind": "pruned", "left": left, "seed": seed})
