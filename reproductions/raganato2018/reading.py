"""What is read off the cells: heads, ways, layers and patterns as numbers with intervals."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lorgnette.lenses.trees.lens import WAYS
from lorgnette.syntax.attachment import BASELINES
from reproductions.frame.conditions import TRAINED
from reproductions.frame.readings import array, interval
from reproductions.raganato2018.grid import CONDITIONS, ENGLISH, TASKS, TREEBANKS, key

Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]
Estimate = tuple[float, float, float]
PATTERNS = ("self", "previous", "next", "last")
FAR = 0.5
"""A head follows a pattern if more than half of the rows of words have their largest weight there."""
SMALL = ("en-fr", "en-de", "en-cs")
_NAN = float("nan")


@dataclass(frozen=True)
class Outcome:
    """name → condition → what its cell measured; what was not run is not there."""

    trees: Cells
    patterns: Cells
    probes: Cells
    multi30k: Mapping[str, Any] | None = None
    small: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def outcome(done: Mapping[str, Any], beside: Path) -> Outcome:
    """`beside` is the folder of the cells of voita2019, which trained the small translation models."""

    def gathered(kind: str, names: Any) -> dict[str, dict[str, Any]]:
        found = {n: {c: done[key(kind, n, c)] for c in CONDITIONS if key(kind, n, c) in done} for n in names}
        return {name: cells for name, cells in found.items() if TRAINED in cells}

    return Outcome(
        trees=gathered("trees", TREEBANKS),
        patterns=gathered("patterns", TREEBANKS),
        probes=gathered("probe", (*TASKS, "sem")),
        multi30k=done.get(key("patterns", f"{ENGLISH}-multi30k", TRAINED)),
        small=_small(beside),
    )


def _small(folder: Path) -> dict[str, Any]:
    out = {}
    for languages in SMALL:
        try:
            kept = json.loads((folder / f"pruning-small-{languages}.json").read_text(encoding="utf-8"))
            out[languages] = kept["result"]["patterns"]
        except (OSError, ValueError, KeyError):
            continue
    return out


def uas(cell: Mapping[str, Any], way: str = "to_head") -> np.ndarray:
    """[block layer head]"""
    return np.asarray(array(cell["by_block"]["uas"])[..., WAYS.index(way)])


def baseline(cell: Mapping[str, Any], name: str) -> np.ndarray:
    """[block]"""
    return np.asarray(array(cell["by_block"]["baseline_uas"])[:, BASELINES.index(name)])


def average_head(cell: Mapping[str, Any], way: str = "to_head") -> np.ndarray:
    """[block] mean over all heads."""
    return np.asarray(uas(cell, way).mean((1, 2)))


def best_head(cell: Mapping[str, Any], way: str = "to_head", layers: slice = slice(None)) -> "Chosen":
    """The head that is best in the even blocks, and what it gets in the odd ones."""
    values = uas(cell, way)[:, layers]
    layer, head = np.unravel_index(values[::2].mean(0).argmax(), values.shape[1:])
    start = layers.start or 0
    return Chosen(int(layer) + start + 1, int(head) + 1, np.asarray(values[1::2, layer, head]))


@dataclass(frozen=True)
class Chosen:
    layer: int
    head: int
    told: np.ndarray  # in the blocks it was not chosen on

    @property
    def name(self) -> str:
        return f"{self.layer}-{self.head}"


def peaks(cell: Mapping[str, Any], pattern: str) -> np.ndarray:
    """[block layer head] share of the rows of words whose largest weight is there."""
    return array(cell["by_block"][f"peak_{pattern}"])


def followers(cell: Mapping[str, Any], pattern: str) -> tuple[list[str], int, int]:
    """Heads that follow a pattern; how many do for certain (the whole interval above one half), how many may."""
    blocks = peaks(cell, pattern)
    named = [f"{layer + 1}-{head + 1}" for layer, head in np.argwhere(blocks.mean(0) > FAR)]
    ends = np.array([interval(column)[1:] for column in blocks.reshape(len(blocks), -1).T])
    return named, int((ends[:, 0] > FAR).sum()), int((ends[:, 1] > FAR).sum())


def small_followers(patterns: Mapping[str, Any], pattern: str) -> list[str]:
    """The same of a small model, whose shares are over all its text."""
    shares = np.array(patterns[f"peak_{pattern}"])
    return [f"{layer + 1}-{head + 1}" for layer, head in np.argwhere(shares > FAR)]


def best_state(cell: Mapping[str, Any], states: Any) -> tuple[int, float, float]:
    """Among these states the one with the highest accuracy, its accuracy and its standard error over texts."""
    accuracy = array(cell["accuracy"])
    errors = array(cell["accuracy_se"])
    at = max(states, key=lambda state: accuracy[state])
    return int(at), float(accuracy[at]), float(errors[at])


def inside_less_outside(cell: Mapping[str, Any], layers: Any) -> Estimate:
    """Best accuracy among these layers less the best among the others (the embeddings, 0, are no layer).

    Both are of the same words, which would make the interval narrower; errors are added as if they were not.
    """
    others = [state for state in range(1, len(cell["accuracy"])) if state not in layers]
    _, here, error = best_state(cell, layers)
    _, there, other = best_state(cell, others)
    width = 1.96 * float(np.hypot(error, other))
    return here - there, here - there - width, here - there + width


def within(estimate: Estimate, tolerance: float) -> str:
    """Whether a difference is small: its whole interval within the tolerance, or wholly outside of it."""
    _, low, high = estimate
    if low != low:
        return "cannot tell"
    if -tolerance < low and high < tolerance:
        return "holds"
    return "does not hold" if low > tolerance or high < -tolerance else "cannot tell"
