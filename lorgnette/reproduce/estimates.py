"""Means over seeds and differences of means, with 95 % intervals; what an interval over few seeds can decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev


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


def verdict_above(found: Estimate, bound: float = 0.0) -> str:
    """Whether the mean lies above the bound, as far as its interval can tell."""
    if found.interval is None:
        return "cannot tell"
    low, high = found.interval
    return "holds" if low > bound else "does not hold" if high < bound else "cannot tell"


def _t(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))
