"""The finished cells of the pruning part as points of curves, and the statistics of which heads stay."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Float

from lorgnette.statistics.bleu import Difference, paired

PREFIX = "pruning-"
STACKS = {"encoder": "encoder self", "decoder": "decoder self", "cross": "decoder-encoder"}
NAMES = {"opus-encoder": "opus-mt, encoder alone", "opus-all": "opus-mt, all attentions"}
NAMES |= {"opus-encoder-long": "opus-mt, encoder alone, trained longer"}
NAMES |= {"opus-all-long": "opus-mt, all attentions, trained longer"}
NAMES |= {"small-all": "marian-small, all attentions", "small-scratch": "marian-small, gates from scratch"}
LONGER = "-long"
POSITIONAL, MOSTLY = 0.9, 0.5
"""Shares of argmaxes on one pattern: the paper's criterion for a positional head, and half of them."""
_DRAWS = 2000
Table = Mapping[str, Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Point:
    """A model with some heads left: how it translates, and, if there was one, its random control."""

    strength: float | None
    """λ; 0 is the unpruned model, None the encoder without heads."""
    result: Mapping[str, Any]
    whole: Table
    stacks: Sequence[str]
    """Those that the curve prunes."""

    @property
    def kept(self) -> dict[str, list[list[int]]]:
        """stack → layer → heads; stacks that were not pruned are whole."""
        return {
            stack: [list(row) for row in self.result["kept"].get(stack, rows)] for stack, rows in self.whole.items()
        }

    def heads(self, stack: str) -> int:
        return sum(map(len, self.kept[stack]))

    @property
    def left(self) -> int:
        """Heads left in the stacks that the curve prunes."""
        return sum(self.heads(stack) for stack in self.stacks)

    @property
    def share(self) -> float:
        return self.left / sum(len(row) for stack in self.stacks for row in self.whole[stack])

    def bleu(self, which: str = "test") -> float:
        return float(self.result["scores"][which]["bleu"])

    @property
    def control(self) -> float | None:
        given = self.result.get("control")
        return None if given is None else float(given["scores"]["test"]["bleu"])

    @property
    def undecided(self) -> int:
        """Heads on which the two rules of removal do not agree."""
        rules = self.result.get("gates", {}).get("kept_by")
        return 0 if rules is None else abs(rules["code"] - rules["paper"])


def change(point: Point, base: Point) -> Difference:
    """BLEU of a point less that of another on the test sentences: paired bootstrap."""
    return paired_scores(point.result["scores"]["test"], base.result["scores"]["test"])


def against_control(point: Point) -> Difference:
    return paired_scores(point.result["scores"]["test"], point.result["control"]["scores"]["test"])


def draws_of(result: Mapping[str, Any]) -> Float[np.ndarray, " draw"]:
    """BLEU on each draw of the test sentences; the draws are the same for all models."""
    return np.array(result["scores"]["test"]["draws"])


def above(interval: tuple[float, float]) -> str:
    """The verdict on "this is above 0"."""
    low, high = interval
    return "holds" if low > 0 else "does not hold" if high < 0 else "cannot tell"


def paired_scores(one: Mapping[str, Any], other: Mapping[str, Any]) -> Difference:
    return paired(one["bleu"], other["bleu"], np.array(one["draws"]), np.array(other["draws"]))


@dataclass(frozen=True)
class Outcome:
    """All that the cells gave, by key without the prefix."""

    done: Mapping[str, Any]

    @cached_property
    def found(self) -> dict[str, Any]:
        return {key.removeprefix(PREFIX): result for key, result in self.done.items()}

    def curve(self, name: str) -> list[Point]:
        """The points of "opus-encoder", "opus-all", "small-all" or "small-scratch", the whole model first."""
        base = self.found.get("small-all-lambda0" if name == "small-scratch" else f"{name}-lambda0")
        if base is None:
            return []
        whole: Table = base["kept"]
        stacks = ["encoder"] if "encoder" in name else list(whole)
        start = f"{name}-lambda"
        keys = sorted((key for key in self.found if key.startswith(start)), key=lambda k: float(k.removeprefix(start)))
        points = [Point(float(key.removeprefix(start)), self.found[key], whole, stacks) for key in keys]
        if name == "small-scratch":
            points.insert(0, Point(0.0, base, whole, stacks))
        if f"{name}-empty" in self.found:
            points.append(Point(None, self.found[f"{name}-empty"], whole, stacks))
        return points

    def gated(self, name: str) -> list[Point]:
        return [point for point in self.curve(name) if point.strength]

    def chosen(self, name: str, most: float = 1 / 3) -> Point | None:
        """Of the points with at most so large a share of heads left, the best on the validation sentences."""
        sparse = [point for point in self.gated(name) if point.share <= most]
        return max(sparse, key=lambda point: point.bleu("validation"), default=None)

    def within(self, name: str, loss: float = 1.0) -> Point | None:
        """The sparsest point that loses at most so much BLEU on the validation sentences."""
        points = self.curve(name)
        good = [p for p in self.gated(name) if p.bleu("validation") >= points[0].bleu("validation") - loss]
        return min(good, key=lambda point: point.left, default=None)

    def classifiers(self) -> dict[str, list[Any]]:
        """ "minilm, sst2" → the results of its seeds."""
        out: dict[str, list[Any]] = {}
        for key, result in self.found.items():
            if key.startswith("classes-"):
                model, corpus, _ = key.removeprefix("classes-").rsplit("-", 2)
                out.setdefault(f"{model}, {corpus}", []).append(result)
        return out


def unfinished(**runs: Any) -> list[str]:
    """Which runs were at their best in their last epoch: they had not learnt all that they could."""
    return [name for name, run in runs.items() if run["best"]["epoch"] >= run["epochs"]]


def survival(points: Sequence[Point], stack: str) -> Float[np.ndarray, "point layer head"]:
    """1 where a head stays."""
    layers, heads = len(points[0].whole[stack]), max(len(row) for row in points[0].whole[stack])
    out = np.zeros((len(points), layers, heads))
    for number, point in enumerate(points):
        for layer, row in enumerate(point.kept[stack]):
            out[number, layer, row] = 1
    return out


@dataclass(frozen=True)
class Interval:
    value: float
    interval: tuple[float, float]


def over_heads(statistic: Callable[..., float], *groups: np.ndarray, seed: int = 0) -> Interval | None:
    """A statistic of groups of heads [head …], with the interval of a bootstrap over the heads of each group.

    None where it is not defined, as when no head stays. Heads of one model are no sample of models.
    """
    draw = np.random.default_rng(seed)
    value = statistic(*groups)
    if np.isnan(value):
        return None
    drawn = [statistic(*(group[draw.integers(len(group), size=len(group))] for group in groups)) for _ in range(_DRAWS)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Interval(float(value), (float(low), float(high)))


def roles(patterns: Mapping[str, Any]) -> list[list[str]]:
    """layer → head → role, by where the largest weight of a word's row is; the first that fits."""
    out = []
    for layer in range(len(patterns["confidence"])):
        out.append([_role({key: rows[layer][head] for key, rows in patterns.items() if isinstance(rows, list)})
                    for head in range(len(patterns["confidence"][layer]))])  # fmt: skip
    return out


ROLES = ("positional", "mostly positional", "rarest word", "end of sentence", "none of these")


def _role(head: Mapping[str, float]) -> str:
    near = max(head["peak_previous"], head["peak_next"], head["peak_self"])
    if near >= POSITIONAL:
        return ROLES[0]
    if near >= MOSTLY:
        return ROLES[1]
    if head["rarest"] >= MOSTLY:
        return ROLES[2]
    return ROLES[3] if head["peak_last"] >= MOSTLY else ROLES[4]


def clarity(patterns: Mapping[str, Any]) -> Float[np.ndarray, "layer head"]:
    """The largest share of argmaxes on one pattern (self, previous, next) or on the rarest word."""
    return np.max([patterns[f"peak_{name}"] for name in ("self", "previous", "next")] + [patterns["rarest"]], axis=0)


def seed_means(results: Sequence[Any], first: str, second: str) -> list[float]:
    """For each seed the mean over λ of the difference of two test accuracies, where heads were removed at all."""
    out = []
    for result in results:
        points = [point for point in result["points"] if point["lambda"] > 0 and point["heads"] < _all(result)]
        if points:
            out.append(mean(point[first]["test"] - point[second]["test"] for point in points))
    return out


def _all(result: Any) -> int:
    return int(result["points"][0]["heads"])
