"""Means over seeds, their differences, slopes and correlations, with 95 % intervals; what these can decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


FEWEST = 3
"""Runs of each setting that a bootstrap needs to be worth anything."""


@dataclass(frozen=True)
class Estimate:
    """A mean of some runs, their standard deviation, and the interval of the mean (t distribution)."""

    mean: float
    sd: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.sd:.3f}" if self.interval else f"{self.mean:.3f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Over runs that differ in their seed; one run has no interval. It says nothing of other test texts."""
    if len(values) == 1:
        return Estimate(values[0], 0.0, None)
    middle, spread = mean(values), stdev(values)
    half = _t(len(values) - 1) * spread / math.sqrt(len(values))
    return Estimate(middle, spread, (middle - half, middle + half))


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """mean(first) − mean(second); the interval from the pooled deviation, with n₁ + n₂ − 2 degrees of freedom."""
    middle = mean(first) - mean(second)
    freedom = len(first) + len(second) - 2
    if len(first) == 1 or len(second) == 1:
        return Estimate(middle, 0.0, None)
    squares = (len(first) - 1) * stdev(first) ** 2 + (len(second) - 1) * stdev(second) ** 2
    spread = math.sqrt(squares / freedom)
    half = _t(freedom) * spread * math.sqrt(1 / len(first) + 1 / len(second))
    return Estimate(middle, spread, (middle - half, middle + half))


def slope(values: Sequence[float]) -> float:
    """Of the least-squares line through values at 1, 2, …, n."""
    middle, level = (len(values) + 1) / 2, mean(values)
    places = range(1, len(values) + 1)
    across = sum((at - middle) ** 2 for at in places)
    return sum((at - middle) * (value - level) for at, value in zip(places, values, strict=True)) / across


def rank_correlation(groups: Sequence[Sequence[tuple[float, float]]], draws: int = 1000) -> Estimate | None:
    """Spearman's ρ over the pairs of all groups; the interval from a bootstrap of the runs within each group.

    A group is a setting, its pairs are its seeds: settings were chosen, seeds were drawn. So it says what other seeds
    would give, not what other settings would. None where one side is constant; no interval where a setting has fewer
    than three runs, and of few runs it is rather too narrow.
    """
    import numpy as np

    sizes = [len(group) for group in groups if group]
    pairs = np.array([pair for group in groups for pair in group], dtype=float)
    value = _spearman(pairs[None])[0] if len(pairs) > 2 else math.nan
    if math.isnan(value):
        return None
    if min(sizes) < FEWEST:
        return Estimate(float(value), 0.0, None)
    dice, ends = np.random.default_rng(0), np.cumsum(sizes)
    drawn = [dice.integers(end - size, end, (draws, size)) for size, end in zip(sizes, ends, strict=True)]
    found = _spearman(pairs[np.concatenate(drawn, axis=1)])
    known = found[~np.isnan(found)]
    low, high = np.quantile(known, [0.025, 0.975])
    return Estimate(float(value), float(known.std(ddof=1)), (float(low), float(high)))


def _spearman(pairs: "np.ndarray") -> "np.ndarray":
    """ρ of many samples at once, [draw item 2] → [draw]; NaN where one side is constant.

    As `lorgnette.statistics.spearman`, which takes one sample at a time.
    """
    import numpy as np
    from scipy.stats import rankdata

    ranks = rankdata(pairs, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).sum(axis=1).prod(axis=1))
    covariance = centred.prod(axis=2).sum(axis=1)
    return np.where(spread > 0, covariance / np.where(spread > 0, spread, 1), np.nan)


def verdict_above(found: Estimate, bound: float = 0.0) -> str:
    """Whether the mean lies above the bound, as far as its interval can tell."""
    if found.interval is None:
        return "cannot tell"
    low, high = found.interval
    return "holds" if low > bound else "does not hold" if high < bound else "cannot tell"


def verdict_below(found: Estimate, bound: float = 0.0) -> str:
    """Whether the mean lies below the bound."""
    turned = {"holds": "does not hold", "does not hold": "holds", "cannot tell": "cannot tell"}
    return turned[verdict_above(found, bound)]


def _t(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))
