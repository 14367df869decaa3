"""The curves of Nguyen et al. 2022 over λ, and whether plausibility peaks at a small one and then falls."""

from collections.abc import Sequence
from functools import cached_property

import xarray as xr

from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.seeds import learnt
from reproductions.frame.statistics import paired
from reproductions.nguyen2022.grid import TABLED

NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}
SMALL = (0.01, 0.02)
"""Where the paper has its peak; taken together, so that no maximum is chosen after the fact."""
MEASURES = ("auprc", "auroc")
_DIMS = ("corpus", "vectors", "strength", "seed")
_SHARPENED = 0.1  # of the entropy H: less, and the penalty cannot be said to have acted


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
        return not bool(learnt(accuracy.mean(), place[0]))

    def at_chance(self, place: tuple[str, str], strength: float) -> int:
        """How many seeds of a λ have learnt nothing."""
        accuracy = self.tested(place, "accuracy").sel(strength=strength)
        return int((~learnt(accuracy, place[0])).sum())

    def unsharpened(self, place: tuple[str, str], strength: float | None = None) -> bool:
        """Whether the penalty did not make attention sharper."""
        entropy = self.tested(place, "entropy").mean("seed")
        return float(entropy[0] - entropy.sel(strength=strength or self.largest)) < _SHARPENED

    def _step(self, place: tuple[str, str], measure: str, first: Sequence[float], second: Sequence[float]) -> Estimate:
        """A difference for each seed, whose models start alike and see the texts in the same order; t over seeds.

        It says what other seeds would give on these test texts. Three seeds are not bootstrapped: their draws are ten.
        """
        pooled = self.pooled(place, measure)
        one, other = (pooled.sel(strength=list(side)).mean("strength") for side in (first, second))
        return paired(one, other, "seeds")
