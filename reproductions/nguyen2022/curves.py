"""The curves of Nguyen et al. 2022 over λ, and whether plausibility peaks at a small one and then falls."""

import random
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import xarray as xr

from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.nguyen2022.grid import TABLED

NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}
CLASSES = {"hatexplain": 3, "yelphat": 2, "esnli": 3}
SMALL = (0.01, 0.02)
"""Where the paper has its peak; taken together, so that no maximum is chosen after the fact."""
MEASURES = ("auprc", "auroc")
_DIMS = ("corpus", "vectors", "strength", "seed")
_CHANCE = 0.02  # above one in so many classes: nothing was learnt
_SHARPENED = 0.1  # of the entropy H: less, and the penalty cannot be said to have acted
_SEED_DRAWS = 5  # of the seeds, for each draw of the texts


class Curves:
    """Numbers by corpus, vectors, λ and seed; with --partial, only places where every run is there."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self._arrays: dict[str, xr.DataArray] = {}
        accuracy = self.of("metrics.test.accuracy")
        every = [float(s) for s in accuracy["strength"].values]
        tabled = [s for s in every if s <= TABLED]
        self.places = [
            (corpus, vectors)
            for corpus in NAMES
            for vectors in accuracy["vectors"].values.tolist()
            if corpus in accuracy["corpus"]
            and not accuracy.sel(corpus=corpus, vectors=vectors, strength=tabled).isnull().any()
        ]
        self.strengths = tabled
        self._strong = {place: [s for s in every if s > TABLED and self._there(place, s)] for place in self.places}

    def _there(self, place: tuple[str, str], strength: float) -> bool:
        """Whether every seed of a λ was run."""
        return not bool(self.tested(place, "accuracy").sel(strength=strength).isnull().any())

    def levels(self, place: tuple[str, str]) -> list[float]:
        """The λ of the paper's table, and the stronger ones that were run for every seed here."""
        return [*self.strengths, *self._strong[place]]

    def of(self, path: str, inner: str | Sequence[str] = ()) -> xr.DataArray:
        """[corpus vectors λ seed], λ rising."""
        if path not in self._arrays:
            self._arrays[path] = self.cells.array(path, *_DIMS, inner=inner).sortby("strength")
        return self._arrays[path]

    def tested(self, place: tuple[str, str], measure: str) -> xr.DataArray:
        """Accuracy, macro F1 or entropy on the test texts [λ seed]."""
        return self.of(f"metrics.test.{measure}").sel(corpus=place[0], vectors=place[1])

    def pooled(self, place: tuple[str, str], measure: str) -> xr.DataArray:
        """Plausibility of the words of all texts together [λ seed]."""
        return self.of(f"plausibility.all.pooled.{measure}").sel(corpus=place[0], vectors=place[1])

    def texts(self, corpus: str) -> dict[str, int]:
        """How many texts there are to train on and to test, and how many have marked words."""
        result = self.cells.of(corpus=corpus)[0].result
        return {**result["texts"], "marked": result["plausibility"]["all"]["texts"]}

    @cached_property
    def corpora(self) -> list[str]:
        return list(dict.fromkeys(corpus for corpus, _ in self.places))

    @cached_property
    def small(self) -> tuple[float, ...]:
        return tuple(strength for strength in SMALL if strength in self.strengths)

    @property
    def largest(self) -> float:
        """Of the λ that the paper's table has."""
        return max(strength for strength in self.strengths if strength <= TABLED)

    def strongest(self, place: tuple[str, str]) -> float | None:
        """The greatest λ beyond the table, if one was run."""
        return max(self._strong[place], default=None)

    def rise(self, place: tuple[str, str], measure: str) -> Estimate:
        """Small λ less λ = 0."""
        return self._step(place, measure, self.small, (0.0,))

    def fall(self, place: tuple[str, str], measure: str) -> Estimate:
        """The largest λ less small λ."""
        return self._step(place, measure, (self.largest,), self.small)

    def whole_step(self, place: tuple[str, str], measure: str) -> Estimate:
        """The largest λ less λ = 0."""
        return self._step(place, measure, (self.largest,), (0.0,))

    def strong_step(self, place: tuple[str, str], measure: str, strength: float) -> Estimate:
        """A λ beyond the table less λ = 0."""
        return self._step(place, measure, (strength,), (0.0,))

    def collapsed(self, place: tuple[str, str], strength: float | None = None) -> bool:
        """Whether the classifier at a λ, else at the largest of the table, has learnt nothing."""
        accuracy = self.tested(place, "accuracy").sel(strength=strength or self.largest)
        return float(accuracy.mean()) <= 1 / CLASSES[place[0]] + _CHANCE

    def at_chance(self, place: tuple[str, str], strength: float) -> int:
        """How many seeds of a λ have learnt nothing."""
        accuracy = self.tested(place, "accuracy").sel(strength=strength)
        return int((accuracy <= 1 / CLASSES[place[0]] + _CHANCE).sum())

    def unsharpened(self, place: tuple[str, str], strength: float | None = None) -> bool:
        """Whether the penalty did not make attention sharper."""
        entropy = self.tested(place, "entropy").mean("seed")
        return float(entropy[0] - entropy.sel(strength=strength or self.largest)) < _SHARPENED

    def _step(self, place: tuple[str, str], measure: str, first: Sequence[float], second: Sequence[float]) -> Estimate:
        """A difference of means over seeds; its interval is of a bootstrap over test texts and seeds.

        The same texts are in the same draw of every model; the seeds are drawn anew for each model, whose runs have
        nothing in common. Of three seeds it makes intervals rather too narrow.
        """
        pooled = self.pooled(place, measure)
        value = float(pooled.sel(strength=list(first)).mean() - pooled.sel(strength=list(second)).mean())
        draws = self.of(f"plausibility.all.draws.{measure}", "draw").sel(corpus=place[0], vectors=place[1])
        drawn = {s: draws.sel(strength=s).values.tolist() for s in (*first, *second)}
        dice, seeds = random.Random(0), range(draws.sizes["seed"])

        def level(strengths: Sequence[float], number: int) -> float:
            return sum(sum(drawn[s][dice.choice(seeds)][number] for _ in seeds) for s in strengths) / (
                len(seeds) * len(strengths)
            )

        steps = sorted(
            level(first, number) - level(second, number)
            for number in range(draws.sizes["draw"])
            for _ in range(_SEED_DRAWS)
        )
        low, high = (steps[round(part * (len(steps) - 1))] for part in (0.025, 0.975))
        about = {"n": len(seeds), "over": "seeds, and test texts", "method": "bootstrap"}
        return Estimate(value=value, low=low, high=high, sd=float(np.std(steps, ddof=1)), **about)
