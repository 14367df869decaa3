"""Numbers of every seed: BLEU and loss of every arm, and what became of heads with a role."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from lorgnette.errors import UserError
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished, Measured
from reproductions.frame.statistics import placed_among

ROLES = ("positional", "syntactic", "rare")
"""The functions of Voita et al. 2019; a label beats its control on held-out sentences."""
ARMS = {
    "own": "heads trained with their gates",
    "gates": "the heads that gates chose",
    "confidence": "the most confident heads",
    "gradient": "the heads with the largest gradient",
    "random": "random heads of the same layers",
    "scratch": "the heads of the gates, from scratch",
}
SHARES = {24: "a third", 12: "a sixth", 8: "a third", 4: "a sixth"}
"""Heads left, of 72 (of 24 in a quick run)."""
_ALIKE = 1e-4
"""How far apart two machines may find the loss of one model; two models that were trained apart differ by more."""


class Readings:
    """Every list has a number for each seed, in the order of `seeds`: those that have all that is asked for."""

    def __init__(self, cells: Finished) -> None:
        _of_one_model(cells)
        self.cells = cells
        self.left: list[int] = sorted(cells.labels("left", kind="gates"), reverse=True)
        self.seeds: list[int] = cells.labels("seed")

    def whole(self, metric: str = "bleu") -> dict[int, float]:
        return {_seed(c): c.result["whole"][metric] for c in self.cells.of(kind="whole")}

    def arm(self, name: str, left: int, metric: str = "bleu") -> dict[int, float]:
        """seed → BLEU or loss on the test sentences; of random heads the mean over sets, once all are there."""
        if name == "random":
            every = self.draws(left, metric)
            most = max(map(len, every.values()), default=0)
            return {seed: mean(values) for seed, values in every.items() if len(values) == most}
        kind = {"own": "gates", "scratch": "scratch"}.get(name, "chosen")
        found = {_seed(c): c.result for c in self.cells.of(kind=kind, left=left)}
        return {seed: float((one[name] if kind == "chosen" else one)[metric]) for seed, one in found.items()}

    def draws(self, left: int, metric: str = "bleu") -> dict[int, list[float]]:
        """seed → one number for each random set."""
        out: dict[int, list[float]] = {}
        for cell in self.cells.of(kind="random", left=left):
            out.setdefault(_seed(cell), []).extend(one[metric] for one in cell.result["random"])
        return out

    def over(self, first: str, second: str, left: int, metric: str = "bleu") -> list[float]:
        """By how much the first arm is better than the second, seed by seed; a lower loss is better."""
        one, other = self.arm(first, left, metric), self.arm(second, left, metric)
        sign = -1 if metric != "bleu" else 1
        return [sign * (one[seed] - other[seed]) for seed in self.seeds if seed in one and seed in other]

    def lost(self, left: int, name: str = "own") -> list[float]:
        """BLEU of an arm, of the gates' own model if none is named, less that of the whole one, trained as long."""
        arm, whole = self.arm(name, left), self.whole()
        return [arm[seed] - whole[seed] for seed in self.seeds if seed in arm and seed in whole]

    def mean_over(self, first: str, second: str) -> list[float]:
        """The same as `over`, the mean over the numbers of heads that every seed has."""
        rows = [self.over(first, second, left) for left in self.left]
        rows = [row for row in rows if len(row) == len(self.seeds)]
        return np.mean(rows, axis=0).tolist() if rows else []

    def cut(self, name: str, left: int) -> dict[int, float]:
        """seed → loss right after the cut: of one set, or the mean over the sets of "random" and "free" heads."""
        found = {_seed(c): c.result[name] for c in self.cells.of(kind="after", left=left)}
        return {seed: mean(one) if isinstance(one, list) else float(one["loss"]) for seed, one in found.items()}

    def cut_over(self, first: str, second: str, *left: int) -> list[float]:
        """By how much the first has the lower loss right after the cut, seed by seed; mean over numbers of heads."""
        gaps = []
        for seed in self.seeds:
            pairs = [(self.cut(second, n).get(seed), self.cut(first, n).get(seed)) for n in left or self.left]
            if pairs and all(one is not None and other is not None for one, other in pairs):
                gaps.append(mean(float(one or 0) - float(other or 0) for one, other in pairs))
        return gaps

    def beaten(self, name: str, left: int) -> tuple[int, int]:
        """How many random sets an arm beats in BLEU after the same number of steps, and how many there are."""
        arm, draws = self.arm(name, left), self.draws(left)
        both = [seed for seed in draws if seed in arm]
        return sum(arm[s] > one for s in both for one in draws[s]), sum(len(draws[s]) for s in both)

    def place(self, left: int) -> Estimate:
        """Where the gates' heads lie among the random sets of their seed, trained as long after the same cut."""
        arm, draws = self.arm("gates", left), self.draws(left)
        both = [seed for seed in self.seeds if seed in draws and seed in arm]
        return placed_among([arm[s] for s in both], [draws[s] for s in both], over="random sets")

    def beaten_after(self, left: int) -> tuple[int, int]:
        """The same of the gates' heads by the loss right after the cut."""
        cells = [c.result for c in self.cells.of(kind="after", left=left)]
        return sum(one["gates"]["loss"] < loss for one in cells for loss in one["random"]), sum(
            len(one["random"]) for one in cells
        )

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

    @property
    def roles(self) -> list[int]:
        """How many encoder heads have a role, seed by seed."""
        return [int(role.sum()) for seed in self.seeds if (role := self.with_role(seed)) is not None]

    def with_role(self, seed: int) -> Bool[np.ndarray, "layer head"] | None:
        result = self._whole(seed)
        return None if result is None else np.any([result["roles"][name] for name in ROLES], axis=0)

    def needed(self, seed: int) -> Float[np.ndarray, "layer head"] | None:
        result = self._whole(seed)
        return None if result is None else np.array(result["change"], dtype=float)

    def remain(self, seed: int) -> Float[np.ndarray, "layer head"] | None:
        kept = [c.result["kept"]["encoder"] for c in self.cells.of(kind="gates", seed=seed)]
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


def _of_one_model(cells: Finished) -> None:
    """Refuses cells of a seed that were cut out of different models: their heads would not be all that differs."""
    losses: dict[tuple[int, str], list[float]] = {}
    for cell in cells:
        kind, result = str(cell.labels["kind"]), cell.result
        if kind == "whole":
            losses.setdefault((_seed(cell), "T"), []).append(result["losses"]["trained"])
            losses.setdefault((_seed(cell), "T + G"), []).append(result["losses"]["longer"])
        elif "before" in result:
            stage = {"gates": "T", "after": "T + G, on fewer sentences"}.get(kind, "T + G")
            losses.setdefault((_seed(cell), stage), []).append(result["before"])
    for (seed, stage), found in losses.items():
        if max(found) - min(found) > _ALIKE:
            raise UserError(
                f"The cells of seed {seed} come from different models: the loss of the whole one after {stage} is "
                f"{min(found)} in some and {max(found)} in others. Delete the cells of this seed and run them again."
            )


def _seed(cell: Measured) -> int:
    return int(str(cell.labels["seed"]))
