"""BLEU by seed: of a set of heads, pruned or from scratch, after each length of adaptation."""

from collections.abc import Sequence
from statistics import mean

from reproductions.choice_or_adaptation.grid import ADAPTING, QUICK_ADAPTING
from reproductions.frame.finished import Finished

RANDOM = "random"
"""The mean over random sets."""


class Readings:
    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self.adapting: Sequence[int] = QUICK_ADAPTING if cells.settings.quick else ADAPTING
        self.seeds = sorted({int(str(cell.labels["seed"])) for cell in cells})

    def bleu(self, kind: str, choice: str | None, steps: int) -> dict[int, float]:
        """seed → BLEU; of random sets the mean, for seeds that have them all."""
        at = list(self.adapting).index(steps)
        out: dict[int, float] = {}
        for seed in self.seeds:
            about = {"kind": kind, "seed": seed}
            every = [
                cell.result["after"][at]["bleu"]
                for cell in self.cells.of(**about)
                if choice is None or str(cell.labels["choice"]).startswith(choice)
            ]
            if every and len(every) == self._planned(kind, choice, seed):
                out[seed] = mean(every)
        return out

    def gap(self, one: tuple[str, str | None], other: tuple[str, str | None], steps: int) -> dict[int, float]:
        """seed → by how many BLEU the first is better."""
        first, second = self.bleu(*one, steps), self.bleu(*other, steps)
        return {seed: first[seed] - second[seed] for seed in first if seed in second}

    def _planned(self, kind: str, choice: str | None, seed: int) -> int:
        names = {key for key in self.cells.grid if key.endswith(f"-seed{seed}")}
        wanted = f"{kind}-{choice}" if choice else f"{kind}-"
        return sum(name.startswith(wanted) for name in names)
