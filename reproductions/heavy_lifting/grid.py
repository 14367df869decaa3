"""The cells: for every seed, the whole model, some of its heads left, and those trained from scratch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Settings

HOME = "reproductions.heavy_lifting.measure"


@dataclass(frozen=True)
class Size:
    """How much is trained and measured. First what the workshop of voita2019 is told, then what is new here."""

    small: int = 14
    """Epochs of the whole model; then `gates` epochs with gates or without, then `tuning` steps without heads."""
    gates: int = 2
    batch: int = 256
    preset: str = "marian-small"
    pieces: int = 5000
    limit: int | None = None
    test_limit: int | None = 500
    bf16: bool = True
    tuning: int = 57
    pressure: float = 1.0
    """λ of the gates: without a number to keep it leaves six heads (voita2019), so it suffices; more would close heads
    before the loss can tell them apart."""
    draws: int = 10
    untrained: int = 20
    """Random sets whose loss is measured right after the cut; the first `draws` of them are trained too."""
    ranking: int = 128
    trees: int = 480


FULL = Size()
QUICK = Size(small=2, gates=3, batch=32, preset="marian-tiny", pieces=400, limit=300, test_limit=20, bf16=False,
             tuning=5, draws=2, untrained=3, ranking=20, trees=40)  # fmt: skip
TRAINING = 29_000
"""Pairs of Multi30k to train on."""
LEFT = (24, 12)
"""Heads left of 72: a third and a sixth."""
QUICK_LEFT = (8, 4)
AFTER = {"texts": 100, "free": 5}
"""Of what is measured right after the cut: sentences of each test set, and random sets of all layers."""
PARTS = 2
"""Cells over which the random sets of one model are spread."""


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Seed by seed. What is cut out or trained from scratch has the heads that gates left, and follows them."""
    size = asdict(QUICK if settings.quick else FULL)
    left = QUICK_LEFT if settings.quick else LEFT
    cells: dict[str, Cell] = {}
    for seed in settings.seeds:
        told, at = {"seed": seed, "sizes": size}, {"seed": seed}
        gates = {n: f"gates{n}-seed{seed}" for n in left}
        cells |= {key: Cell(f"{HOME}:gated", {**told, "left": n}, {"kind": "gates", "left": n, **at})
                  for n, key in gates.items()}  # fmt: skip
        cells[f"whole-seed{seed}"] = Cell(f"{HOME}:whole", told, {"kind": "whole", **at})
        for n, key in gates.items():
            if key in done:
                cells |= _cut(n, seed, {**told, "kept": done[key]["kept"]}, size["draws"])
    return cells


def _cut(left: int, seed: int, told: Mapping[str, Any], draws: int) -> dict[str, Cell]:
    """The longest first."""
    at = {"left": left, "seed": seed}
    cells = {f"scratch{left}-seed{seed}": Cell(f"{HOME}:from_scratch", told, {"kind": "scratch", **at})}
    after = {**told, **AFTER, "random": draws}
    cells[f"after{left}-seed{seed}"] = Cell(f"{HOME}:right_after", after, {"kind": "after", **at})
    cells[f"chosen{left}-seed{seed}"] = Cell(f"{HOME}:chosen", told, {"kind": "chosen", **at})
    ends = [draws * part // PARTS for part in range(PARTS + 1)]
    for part, (first, last) in enumerate(pairwise(ends)):
        labels = {"kind": "random", "part": part, **at}
        some = {**told, "first": first, "last": last}
        cells[f"random{left}-part{part}-seed{seed}"] = Cell(f"{HOME}:by_chance", some, labels)
    return cells
