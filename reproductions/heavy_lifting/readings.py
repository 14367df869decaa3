"""Numbers of every seed: BLEU and loss of every arm, and what became of heads with a role."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from reproductions.frame.finished import Finished, Measured

ROLES = ("positional", "syntactic", "rare")
"""The functions of Voita et al. 2019; a label beats its control on held-out sentences."""
ARMS = {
    "own": "gates, as trained",
    "gates": "the heads that gates chose",
    "confidence": "the most confident heads",
    "gradient": "the heads with the largest gradient",
    "random": "random heads of the same layers",
    "scratch": "the heads of the gates, from scratch",
}
SHARES = {48: "two thirds", 36: "half", 24: "a third", 12: "a sixth", 8: "a third", 4: "a sixth"}
"""Heads left, of 72 (of 24 in a quick run)."""


class Readings:
    """Every list has a number for each seed, in the order of `seeds`: those that have all that is asked for."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self.left: list[int] = sorted(cells.labels("left", kind="pruned"), reverse=True)
        self.seeds: list[int] = cells.labels("seed")

    def whole(self, metric: str = "bleu") -> dict[int, float]:
        return {_seed(c): c.result["whole"][metric] for c in self.cells.of(kind="whole")}

    def arm(self, name: str, left: int, metric: str = "bleu") -> dict[int, float]:
        """seed → BLEU or loss on the test sentences; of random heads the mean over draws."""
        kind = "scratch" if name == "scratch" else "pruned"
        cells = {_seed(c): c.result for c in self.cells.of(kind=kind, left=left)}
        return {seed: _number(result, name, metric) for seed, result in cells.items()}

    def draws(self, left: int, metric: str = "bleu") -> dict[int, list[float]]:
        """seed → one number for each random set."""
        return {_seed(c): [one[metric] for one in c.result["random"]] for c in self.cells.of(kind="pruned", left=left)}

    def over(self, first: str, second: str, left: int, metric: str = "bleu") -> list[float]:
        """By how much the first arm is better than the second, seed by seed; a lower loss is better."""
        one, other = self.arm(first, left, metric), self.arm(second, left, metric)
        sign = -1 if metric != "bleu" else 1
        return [sign * (one[seed] - other[seed]) for seed in self.seeds if seed in one and seed in other]

    def lost(self, left: int) -> list[float]:
        """BLEU of the gates' own model less that of the whole one, trained as long."""
        own, whole = self.arm("own", left), self.whole()
        return [own[seed] - whole[seed] for seed in self.seeds if seed in own and seed in whole]

    def mean_over(self, first: str, second: str) -> list[float]:
        """The same as `over`, the mean over the numbers of heads that every seed has."""
        rows = [self.over(first, second, left) for left in self.left]
        rows = [row for row in rows if len(row) == len(self.seeds)]
        return np.mean(rows, axis=0).tolist() if rows else []

    def layers(self, left: int) -> list[float]:
        """Loss right after the cut: of heads drawn from all layers alike, less that of the gates' numbers by layer."""
        cells = self.cells.of(kind="pruned", left=left)
        return [mean(c.result["free"]) - mean(c.result["untrained"]) for c in cells]

    def beaten(self, left: int) -> tuple[int, int]:
        """How many random sets the gates' heads beat in BLEU, and how many there are."""
        gates, draws = self.arm("gates", left), self.draws(left)
        return sum(gates[s] > one for s in draws for one in draws[s]), sum(map(len, draws.values()))

    def role_gaps(self, what: str) -> list[float]:
        """For each seed: heads with a role less the others of their layer, mean over layers that have both.

        `remain`: the share of the gates' sets (one for each number of heads) that keep the head; `needed`: the change
        of the loss without it.
        """
        gaps = []
        for seed in self.seeds:
            value, role = self.remain(seed) if what == "remain" else self.needed(seed), self.with_role(seed)
            if value is None or role is None:
                continue
            both = [row for row in range(len(role)) if 0 < role[row].sum() < role.shape[1]]
            if both:
                gaps.append(mean(float(value[row][role[row]].mean() - value[row][~role[row]].mean()) for row in both))
        return gaps

    def with_role(self, seed: int) -> Bool[np.ndarray, "layer head"] | None:
        result = self._whole(seed)
        return None if result is None else np.any([result["roles"][name] for name in ROLES], axis=0)

    def needed(self, seed: int) -> Float[np.ndarray, "layer head"] | None:
        result = self._whole(seed)
        return None if result is None else np.array(result["change"], dtype=float)

    def remain(self, seed: int) -> Float[np.ndarray, "layer head"] | None:
        kept = [c.result["kept"]["encoder"] for c in self.cells.of(kind="pruned", seed=seed)]
        result = self._whole(seed)
        if not kept or result is None:
            return None
        out = np.zeros(np.array(result["change"]).shape)
        for table in kept:
            for layer, heads in enumerate(table):
                out[layer, heads] += 1 / len(kept)
        return out

    def _whole(self, seed: int) -> Mapping[str, Any] | None:
        cells = self.cells.of(kind="whole", seed=seed)
        return cells[0].result if cells else None


def _seed(cell: Measured) -> int:
    return int(str(cell.labels["seed"]))


def _number(result: Mapping[str, Any], name: str, metric: str) -> float:
    if name == "scratch":
        return float(result[metric])
    if name == "own":
        return float(result["own"][metric])
    if name == "random":
        return mean(one[metric] for one in result["random"])
    return float(result["sets"][name][metric])
