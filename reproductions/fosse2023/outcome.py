"""The finished trainings of pure-attention models, and the numbers that tables, claims and figures ask for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lorgnette.corpora.annotated import YELP_TESTS
from reproductions.fosse2023 import grid

NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}
CLASSES = {"hatexplain": 3, "yelphat": 2, "esnli": 3}
Point = tuple[int, float]
"""Layers and λ."""
Measure = Callable[[Any], float]


@dataclass(frozen=True)
class Outcome:
    """What the cells gave; of a page that is made early, only some are there."""

    size: grid.Size
    seeds: tuple[int, ...]
    results: Mapping[str, Any]

    def of(self, corpus: str, point: Point, vectors: str = grid.MAIN) -> list[Any]:
        """The results at one point, one for each seed that was run."""
        keys = [grid.Run(corpus, vectors, *point, seed).key for seed in self.seeds]
        return [self.results[key] for key in keys if key in self.results]

    def there(self, corpus: str, points: Sequence[Point], vectors: str = grid.MAIN) -> list[Point]:
        return [point for point in points if self.of(corpus, point, vectors)]

    @cached_property
    def corpora(self) -> tuple[str, ...]:
        """Those with a finished run."""
        return tuple(corpus for corpus in self.size.corpora if self.there(corpus, grid.points(self.size)))

    @cached_property
    def vectors(self) -> tuple[str, ...]:
        every = [(v, c) for v in self.size.vectors for c in self.corpora]
        return tuple(dict.fromkeys(v for v, c in every if self.there(c, grid.points(self.size), v)))

    def depths(self, corpus: str, vectors: str = grid.MAIN) -> list[int]:
        return [layers for layers, _ in self.there(corpus, [(n, 0.0) for n in self.size.depths], vectors)]

    def strengths(self, corpus: str, vectors: str = grid.MAIN) -> list[float]:
        return [s for _, s in self.there(corpus, [(1, s) for s in self.size.strengths], vectors)]

    def values(self, corpus: str, point: Point, measure: Measure, vectors: str = grid.MAIN) -> list[float]:
        return [float(measure(one)) for one in self.of(corpus, point, vectors)]

    def pairs(self, corpus: str, points: Sequence[Point], one: Measure, other: Measure) -> list[list[tuple]]:
        """For each point the pairs of two measures, one for each seed."""
        return [[(float(one(run)), float(other(run))) for run in self.of(corpus, point)] for point in points]

    def by_strength(self, corpus: str) -> list[Point]:
        return [(1, strength) for strength in self.strengths(corpus)]

    def by_depth(self, corpus: str) -> list[Point]:
        return [(layers, 0.0) for layers in self.depths(corpus)]

    def everything(self, corpus: str) -> list[Point]:
        return self.there(corpus, grid.points(self.size))


def accuracy(one: Any) -> float:
    return float(one["metrics"]["test"]["accuracy"])


def similarity(what: str, layer: int, group: str = "published") -> Measure:
    """SIM of "key", "value" or "state" at a layer from 0, −1 the last."""
    return lambda one: one["groups"][group][what][layer]


def stiffness(one: Any) -> float:
    """SIM of the values of the last layer, those that <cls> mixes before it is read; all test texts."""
    return float(one["groups"]["whole"]["value"][-1])


def sharpness(group: str = "regularisation") -> Measure:
    """H of the row of <cls> in the first layer."""
    return lambda one: one["groups"][group]["entropy"][0]


def plausibility(which: str, measure: str, corpus: str | None = None) -> Measure:
    """Pooled AUROC or AUPRC of a map; for YelpHat, if the corpus is told, of the reviews of 50 words."""

    def found(one: Any) -> float:
        groups = one["plausibility"][which]
        short = groups.get(YELP_TESTS["test50"]) if corpus == "yelphat" else None
        return float((short or groups["all"])["pooled"][measure])

    return found


def faithfulness(measure: str, order: str = "attention") -> Measure:
    return lambda one: one["faithfulness"][order][measure]


def replaced(kind: str, measure: str) -> Measure:
    return lambda one: one["replaced"][kind][measure]


def cost(kind: str) -> Measure:
    """Accuracy with replaced weights less that with the trained ones, on the same texts."""
    return lambda one: one["replaced"][kind]["accuracy"] - one["replaced"]["trained"]["accuracy"]


def at_chance(corpus: str, found: Sequence[Any]) -> int:
    """How many of these runs have learnt nothing: an accuracy within .02 of one in so many classes."""
    return sum(accuracy(one) <= 1 / CLASSES[corpus] + 0.02 for one in found)
