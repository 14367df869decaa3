"""The finished runs: what is read off them, by corpus and setting, a value for each seed."""

from dataclasses import dataclass

import numpy as np

from reproductions.anisotropy_or_training.grid import CORPORA, DEEP, SETTINGS, Setting
from reproductions.fosse2023.attention.runs import Seeds
from reproductions.frame.finished import Finished, Measured
from reproductions.frame.seeds import learnt

HIGH = 0.9
"""SIM from which we call vectors anisotropic: what the last of five layers has in every published table."""
LESS = 0.05
"""A run learnt less if its accuracy is so far below the mean of the reference."""
REFERENCE = Setting("glove-100")
Key = tuple[str, Setting]


@dataclass(frozen=True)
class Runs:
    cells: Finished

    def at(self, corpus: str, setting: Setting) -> list[Measured]:
        return self.cells.of(corpus=corpus, **vars(setting))

    def of(self, corpus: str, setting: Setting, path: str, layer: int | None = None) -> Seeds:
        """What lies at a path; of a list by layer, the entry of that layer: from 1, or −1 for the last."""
        values = [cell.value(path) for cell in self.at(corpus, setting)]
        at = None if layer is None else layer - 1 if layer > 0 else layer
        return np.array([value if at is None else value[at] for value in values], dtype=float)

    def sim(self, corpus: str, setting: Setting, of: str = "value", layer: int = -1, when: str = "trained") -> Seeds:
        return self.of(corpus, setting, f"{when}.{of}", layer)

    def accuracy(self, corpus: str, setting: Setting, split: str = "train") -> Seeds:
        return self.of(corpus, setting, f"accuracy.{split}")

    def pairs(self, corpus: str, one: Setting, other: Setting, path: str, layer: int | None = None) -> Seeds:
        """One less the other, for every seed that has both."""
        sides = [
            dict(zip(self.seeds(corpus, side), self.of(corpus, side, path, layer), strict=True))
            for side in (one, other)
        ]
        return np.array([sides[0][seed] - sides[1][seed] for seed in sides[0] if seed in sides[1]], dtype=float)

    def seeds(self, corpus: str, setting: Setting) -> list[int]:
        return [int(str(cell.labels["seed"])) for cell in self.at(corpus, setting)]

    def learnt(self, corpus: str, setting: Setting) -> Seeds:
        """Whether each run does better than the largest class on the test texts."""
        return learnt(self.accuracy(corpus, setting, "test"), corpus)

    def settings(self, corpus: str, deep: bool = False) -> list[Setting]:
        """Those that were run, in the order of the grid; with `deep`, those of five layers."""
        every = [one for one in SETTINGS[corpus] if self.at(corpus, one)]
        return [one for one in every if one.layers == DEEP] if deep else every

    def reference(self, corpus: str, split: str) -> float:
        """Mean accuracy of GloVe of width 100, trained as the paper does; NaN if it was not run."""
        values = self.accuracy(corpus, REFERENCE, split)
        return float(values.mean()) if len(values) else float("nan")

    def anisotropic(self, corpus: str, split: str) -> dict[int, tuple[int, int]]:
        """seed → of its runs of five layers with SIM of the last values above .9, how many learnt less, and how many
        there are; seeds without one are left out."""
        least, found = self.reference(corpus, split) - LESS, dict[int, tuple[int, int]]()
        for one in self.settings(corpus, deep=True):
            columns = self.seeds(corpus, one), self.accuracy(corpus, one, split), self.sim(corpus, one)
            for seed, accuracy, sim in zip(*columns, strict=True):
                if sim > HIGH:
                    some, every = found.get(seed, (0, 0))
                    found[seed] = some + int(accuracy < least), every + 1
        return found

    def less_otherwise(self, corpus: str) -> tuple[int, int]:
        """Of the runs of five layers with a SIM of at most .9: how many learnt less, and how many there are."""
        least, deep = self.reference(corpus, "train") - LESS, self.settings(corpus, deep=True)
        less = [(self.accuracy(corpus, one) < least)[self.sim(corpus, one) <= HIGH] for one in deep]
        return int(sum(map(np.sum, less))), sum(map(len, less))

    @property
    def corpora(self) -> list[str]:
        return [corpus for corpus in CORPORA if self.cells.of(corpus=corpus)]
