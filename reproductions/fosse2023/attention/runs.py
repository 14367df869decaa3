"""The finished trainings of pure-attention models: what is read off them, a value for each seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from lorgnette.texts.annotated import YELP_TESTS
from reproductions.fosse2023.grid import CORPORA, DEPTHS, MAIN, STRENGTHS, TABLED, VECTORS
from reproductions.frame.finished import Finished
from reproductions.frame.seeds import learnt
from reproductions.frame.statistics import slope
from reproductions.frame.wide_vectors import NAME as WIDE

Point = tuple[int, float]
"""Layers and λ."""
Seeds = Float[np.ndarray, " seed"]
ByPoint = Float[np.ndarray, "seed point"]
SAME = 0.004
"""Of SIM of the last values: runs of one seed that differ by less at two λ are the same model twice."""
REPLACED = ("uniform", "permuted", "adversarial")


@dataclass(frozen=True)
class Runs:
    """`of` reads one number of the runs at one point: a value for each seed that was run there."""

    cells: Finished

    @property
    def main(self) -> str:
        """The vectors of the main models: others with --published."""
        return WIDE if self.cells.settings.published else MAIN

    def _named(self, vectors: str) -> str:
        return self.main if vectors == MAIN else vectors

    def of(
        self, path: str, corpus: str, point: Point, vectors: str = MAIN, *, at: int | None = None, weights: str = "best"
    ) -> Seeds:
        """What lies at a path of the result; of a list by layer (or epoch), the entry `at`."""
        at_point = {"vectors": self._named(vectors), "layers": point[0], "strength": point[1]}
        cells = self.cells.of(corpus=corpus, **at_point, weights=weights)
        values = [cell.value(path) for cell in cells]
        return np.array([value if at is None else value[at] for value in values], dtype=float)

    def sim(self, of: str, corpus: str, point: Point, layer: int = 0, group: str = "published", **where: Any) -> Seeds:
        """SIM of "key" or "value" at a layer from 1; 0 is the last."""
        return self.of(f"groups.{group}.{of}", corpus, point, at=layer - 1, **where)

    def entropy(self, corpus: str, point: Point, group: str = "regularisation", **where: Any) -> Seeds:
        """H of the row of <cls> in the first layer."""
        return self.of(f"groups.{group}.entropy", corpus, point, at=0, **where)

    def accuracy(self, corpus: str, point: Point, vectors: str = MAIN, **where: Any) -> Seeds:
        return self.of("metrics.test.accuracy", corpus, point, vectors, **where)

    def slopes(self, of: str, corpus: str, layers: int, vectors: str = MAIN) -> Seeds:
        """Of SIM over the layers of a model, per layer."""
        by_layer = [self.sim(of, corpus, (layers, 0.0), n, vectors=vectors) for n in range(1, layers + 1)]
        return np.array([slope(values) for values in zip(*by_layer, strict=True)])

    def stiffness(self, corpus: str, point: Point) -> Seeds:
        """SIM of the values of the last layer, those that <cls> mixes before it is read; all test texts."""
        return self.sim("value", corpus, point, group="whole")

    def plausibility(self, which: str, corpus: str, point: Point) -> Seeds:
        """Pooled AUROC of a map over the words that the paper judges: on YelpHat those of the reviews of 50 words."""
        group = YELP_TESTS["test50"] if corpus == "yelphat" else "all"
        return self.of(f"plausibility.{which}.{group}.pooled.auroc", corpus, point)

    def replaced(self, kind: str, measure: str, corpus: str, point: Point) -> Seeds:
        return self.of(f"replaced.{kind}.{measure}", corpus, point)

    def cost(self, kind: str, corpus: str, point: Point) -> Seeds:
        """Accuracy with replaced weights less that with the trained ones, on the same texts."""
        changed, trained = (self.replaced(k, "accuracy", corpus, point) for k in (kind, "trained"))
        return np.asarray(changed - trained)

    def there(self, corpus: str, points: Sequence[Point], vectors: str = MAIN) -> list[Point]:
        return [point for point in points if len(self.accuracy(corpus, point, vectors))]

    def depths(self, corpus: str, vectors: str = MAIN) -> list[int]:
        return [layers for layers, _ in self.there(corpus, [(n, 0.0) for n in DEPTHS], vectors)]

    def strengths(self, corpus: str, vectors: str = MAIN) -> list[float]:
        return [strength for _, strength in self.there(corpus, [(1, s) for s in STRENGTHS], vectors)]

    def by_depth(self, corpus: str) -> list[Point]:
        return [(layers, 0.0) for layers in self.depths(corpus)]

    def by_strength(self, corpus: str) -> list[Point]:
        """As far as the paper's table goes: a stronger penalty is looked at by itself."""
        return [(1, strength) for strength in self.strengths(corpus) if strength <= TABLED]

    def points(self, corpus: str) -> list[Point]:
        """All depths without a penalty, then one layer with each."""
        return self.by_depth(corpus) + [point for point in self.by_strength(corpus) if point[1] > 0]

    @cached_property
    def corpora(self) -> list[str]:
        return [corpus for corpus in CORPORA if self.points(corpus)]

    @cached_property
    def vectors(self) -> list[str]:
        return [name for name in VECTORS if any(self.depths(corpus, name) for corpus in self.corpora)]

    def seeds(self, corpus: str, point: Point, vectors: str = MAIN) -> list[int]:
        """Of the runs that `of` reads, in the same order."""
        at_point = {"vectors": self._named(vectors), "layers": point[0], "strength": point[1]}
        cells = self.cells.of(corpus=corpus, **at_point, weights="best")
        return [int(str(cell.labels["seed"])) for cell in cells]

    def by_seed(self, corpus: str, points: Sequence[Point], read: Callable[[Point], Seeds]) -> ByPoint:
        """One number of the runs of every point, in a row for each seed that all points have."""
        columns = [dict(zip(self.seeds(corpus, point), read(point).tolist(), strict=True)) for point in points]
        seeds = [seed for seed in columns[0] if all(seed in column for column in columns)]
        rows = [[column[seed] for column in columns] for seed in seeds]
        return np.array(rows, dtype=float).reshape(len(seeds), len(points))

    def learnt(self, corpus: str, point: Point, vectors: str = MAIN) -> Bool[np.ndarray, " seed"]:
        """Whether each run does better than the largest class."""
        return learnt(self.accuracy(corpus, point, vectors), corpus)

    def different(self, corpus: str, points: Sequence[Point]) -> list[Point]:
        """Points without those whose models are those of the first to three digits: copies are no further runs."""
        first = points[0]
        gaps = {p: self.by_seed(corpus, [first, p], lambda one: self.stiffness(corpus, one)) for p in points[1:]}
        return [first, *(p for p, gap in gaps.items() if gap.size and np.abs(np.diff(gap)).max() >= SAME)]

    def at_chance(self, corpus: str, points: Sequence[Point]) -> int:
        """How many runs have learnt nothing: no better than the largest class."""
        return sum(int((~self.learnt(corpus, point)).sum()) for point in points)
