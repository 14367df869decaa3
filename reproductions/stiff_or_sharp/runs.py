"""The finished runs, paired by seed."""

from dataclasses import dataclass

import numpy as np

from reproductions.fosse2023.attention.runs import Seeds
from reproductions.frame.finished import Finished
from reproductions.frame.seeds import learnt
from reproductions.stiff_or_sharp.grid import ARMS, CORPORA

MEASURES = {
    "value": "SIM of the values",
    "entropy": "entropy H",
    "auprc": "AUPRC of attention",
    "accuracy.test": "test accuracy",
    "flipped.uniform": "share of predictions that uniform weights change",
}
CONTRASTS = {
    "sharp, values free": ("sharp", "plain"),
    "sharp, values held": ("sharp-held", "held"),
    "stiff": ("stiff", "held"),
    "values held": ("held", "plain"),
}
"""What an arm does: its name, and the arm that it is compared with."""


@dataclass(frozen=True)
class Runs:
    cells: Finished
    part: str = "arms"

    @property
    def gauge(self) -> "Runs":
        """The same trainings once more, for SIM less the constant that is free."""
        return Runs(self.cells, "gauge")

    def of(self, corpus: str, arm: str, path: str) -> Seeds:
        return np.array(list(self.by_seed(corpus, arm, path).values()), dtype=float)

    def by_seed(self, corpus: str, arm: str, path: str) -> dict[int, float]:
        cells = self.cells.of(part=self.part, corpus=corpus, arm=arm)
        return {int(str(cell.labels["seed"])): float(cell.value(path)) for cell in cells}

    def effect(self, corpus: str, arms: tuple[str, str], path: str) -> tuple[Seeds, Seeds]:
        """One arm less the other for every seed that has both, and whether both of its runs are above chance."""
        one, other = (self.by_seed(corpus, arm, path) for arm in arms)
        right = [self.by_seed(corpus, arm, "accuracy.test") for arm in arms]
        seeds = [seed for seed in one if seed in other]
        above = learnt([[side[seed] for side in right] for seed in seeds], corpus).reshape(len(seeds), len(arms))
        return np.array([one[seed] - other[seed] for seed in seeds], dtype=float), above.all(axis=1)

    def at_chance(self, corpus: str, arm: str) -> int:
        return int((~learnt(self.of(corpus, arm, "accuracy.test"), corpus)).sum())

    @property
    def corpora(self) -> list[str]:
        return [corpus for corpus in CORPORA if self.cells.of(part=self.part, corpus=corpus)]

    @property
    def arms(self) -> list[str]:
        return [arm for arm in ARMS if self.cells.of(part=self.part, arm=arm)]
