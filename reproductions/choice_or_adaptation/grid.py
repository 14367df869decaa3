"""The cells: gates choose heads; then every set of heads is cut out at the same step, and adapts as long as others."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Settings
from reproductions.heavy_lifting.grid import FULL, QUICK

LEFT, QUICK_LEFT = 24, 8
"""Heads left, of 72: a third."""
ADAPTING, QUICK_ADAPTING = (57, 285, 1140), (2, 4, 6)
"""Steps after the cut; each length is a run of its own, whose step size falls to zero."""
DRAWS, QUICK_DRAWS = 5, 2
"""Random sets, with the gates' number of heads in every layer."""
CHOICES = ("gates", "gradient", "output_length")
_HOME = "reproductions.choice_or_adaptation.measure"


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Seed by seed; what is cut has the heads that gates left, and follows them."""
    quick = settings.quick
    sizes = asdict(QUICK if quick else FULL)
    left = QUICK_LEFT if quick else LEFT
    adapting = list(QUICK_ADAPTING if quick else ADAPTING)
    cells: dict[str, Cell] = {}
    for seed in settings.seeds:
        told = {"seed": seed, "sizes": sizes}
        gates = f"gates-seed{seed}"
        cells[gates] = Cell("reproductions.heavy_lifting.measure:gated", {**told, "left": left},
                            {"kind": "gates", "seed": seed})  # fmt: skip
        cells[f"whole-seed{seed}"] = Cell(f"{_HOME}:whole", {**told, "adapting": adapting},
                                          {"kind": "whole", "seed": seed})  # fmt: skip
        if gates not in done:
            continue
        told |= {"kept": done[gates]["kept"], "adapting": adapting}
        random = [f"random{number}" for number in range(QUICK_DRAWS if quick else DRAWS)]
        for kind, choices in (("pruned", (*CHOICES, *random)), ("scratch", ("gates", random[0]))):
            for choice in choices:
                labels = {"kind": kind, "choice": choice, "seed": seed}
                cells[f"{kind}-{choice}-seed{seed}"] = Cell(f"{_HOME}:{kind}", {**told, "choice": choice}, labels)
    return cells
