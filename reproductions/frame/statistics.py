"""Estimates with 95 % intervals: means over runs or blocks, differences, rank correlations."""

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import permutations
from statistics import mean, stdev
from typing import Any

import numpy as np
from jaxtyping import Float

from lorgnette.statistics import estimate
from lorgnette.statistics.bootstrap import percentile_interval
from lorgnette.statistics.estimate import CONFIDENCE
from reproductions.frame.claims import Estimate

SHARE, COSINE = (0.0, 1.0), (-1.0, 1.0)
"""Between which ends a share (an accuracy, an AUROC) and a cosine (a correlation) lie."""
FEWEST = 3
"""Runs of each setting that a bootstrap needs to be worth anything."""
MOST_ORDERED = 9
"""Settings of a seed whose orders are all tried: 362,880."""


def mean_of(values: Any, over: str = "seeds", ends: tuple[float, float] | None = None) -> Estimate:
    """Mean ± t · s/√n. What is missing (NaN, None) is left out; one value has no interval.

    It says what other draws of `over` would give, and nothing of what was the same in all of them. A number that lies
    between two `ends` (`SHARE`, `COSINE`) has an interval between them: t of the arcsine of its root, and back.
    """
    known = _known(values)
    if len(known) < 2:
        return Estimate(value=known[0] if known else None, n=len(known), over=over)
    about: dict[str, Any] = {"value": mean(known), "sd": stdev(known), "n": len(known), "over": over}
    if ends is None:
        low, high = estimate.Estimate.mean(known).interval
        return Estimate(low=low, high=high, method="t", **about)
    least, most = ends
    angles = np.arcsin(np.sqrt((np.clip(known, least, most) - least) / (most - least)))
    sides = np.clip(estimate.Estimate.mean(angles.tolist()).interval, 0, np.pi / 2)
    low, high = (least + (most - least) * np.sin(sides) ** 2).tolist()
    return Estimate(low=min(low, about["value"]), high=max(high, about["value"]), method="t, arcsine", **about)


def difference(first: Any, second: Any, over: str = "seeds") -> Estimate:
    """mean(first) − mean(second) of runs that have nothing in common; pooled deviation, n₁ + n₂ − 2 degrees."""
    one, other = _known(first), _known(second)
    gap, count = mean(one) - mean(other), min(len(one), len(other))
    if count < 2:
        return Estimate(value=gap, n=count, over=over)
    from scipy.stats import t

    freedom = len(one) + len(other) - 2
    spread = math.sqrt(((len(one) - 1) * stdev(one) ** 2 + (len(other) - 1) * stdev(other) ** 2) / freedom)
    half = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * spread * math.sqrt(1 / len(one) + 1 / len(other))
    return Estimate(value=gap, low=gap - half, high=gap + half, sd=spread, n=count, over=over, method="t, pooled")


def welch(first: Any, second: Any, over: str = "seeds") -> Estimate:
    """mean(first) − mean(second) of samples that may differ in spread and size (Welch 1947)."""
    from scipy.stats import ttest_ind

    one, other = _known(first), _known(second)
    gap, count = mean(one) - mean(other), min(len(one), len(other))
    if count < 2:
        return Estimate(value=gap, n=count, over=over)
    if np.ptp(one) == np.ptp(other) == 0:  # no spread, no t
        return Estimate(value=gap, low=gap, high=gap, n=count, over=over, method="Welch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # values that differ by rounding alone
        low, high = ttest_ind(one, other, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(value=gap, low=float(low), high=float(high), n=count, over=over, method="Welch")


def paired(first: Any, second: Any, over: str = "blocks") -> Estimate:
    """The mean of the differences of what was measured on the same blocks, texts or seeds."""
    return mean_of(np.asarray(first, dtype=float) - np.asarray(second, dtype=float), over)


def rank_correlation(groups: Sequence[Sequence[tuple[float, float]]], draws: int = 1000) -> Estimate | None:
    """Spearman's ρ over the pairs of all groups; the interval from a bootstrap of the runs within each group.

    A group is a setting, its pairs are its seeds: settings were chosen, seeds were drawn. So it says what other seeds
    would give, not what other settings would. None where one side is constant; no interval where a setting has fewer
    than three runs, and of few runs it is rather too narrow.
    """
    sizes = [len(group) for group in groups if group]
    pairs = np.array([pair for group in groups for pair in group], dtype=float)
    value = _spearman(pairs[None])[0] if len(pairs) > 2 else math.nan
    if math.isnan(value):
        return None
    if min(sizes) < FEWEST:
        return Estimate(value=float(value), n=min(sizes), over="seeds")
    dice, ends = np.random.default_rng(0), np.cumsum(sizes)
    drawn = [dice.integers(end - size, end, (draws, size)) for size, end in zip(sizes, ends, strict=True)]
    values = _spearman(pairs[np.concatenate(drawn, axis=1)])
    return percentile(float(value), values[~np.isnan(values)], n=min(sizes), over="seeds")


def ranked_within(first: Any, second: Any, known: Any, over: str = "seeds") -> Estimate:
    """The mean over items (seeds) of Spearman's ρ over the few settings of each, with an exact test against zero.

    ρ of three settings is ±½ or ±1, and a t interval over such values means nothing. If the settings of a seed could be
    exchanged, every order of its second measure would be as likely as any other: p is the share of all orders of all
    seeds whose mean |ρ| is at least as large (Fisher's permutation test, stratified by seed). It assumes no more than
    that seeds are independent, and says nothing of other settings.
    """
    rows = [np.stack(pair, axis=-1)[row] for *pair, row in zip(first, second, known, strict=True)]
    rows = [row for row in rows if len(row) >= FEWEST and not math.isnan(_spearman(row[None])[0])]
    if not rows:
        return Estimate(value=None, n=0, over=over)
    value = float(np.mean([_spearman(row[None])[0] for row in rows]))
    sums, chances = np.zeros(1), np.ones(1)
    for row in rows:
        if len(row) > MOST_ORDERED:
            raise ValueError(f"{len(row)} settings have too many orders to try them all")
        orders = np.array(list(permutations(range(len(row)))))
        shuffled = np.stack([np.broadcast_to(row[:, 0], orders.shape), row[orders, 1]], axis=-1)
        values, counts = np.unique(_spearman(shuffled).round(9), return_counts=True)
        both = (sums[:, None] + values).round(9)
        sums, place = np.unique(both, return_inverse=True)
        chances = np.bincount(place.ravel(), (chances[:, None] * counts / counts.sum()).ravel())
    p = float(chances[np.abs(sums) >= abs(value) * len(rows) - 1e-6].sum())
    return Estimate(value=value, n=len(rows), over=over, method="permutation", p=min(1.0, p))


def placed_among(chosen: Sequence[float], draws: Sequence[Sequence[float]], over: str = "seeds") -> Estimate:
    """The share of random draws that a choice beats, less one half: mean over items (seeds), with an exact test.

    If the choice were one more draw, every place among them would be as likely. p is the chance that places drawn so,
    independently for each item, are at least as far from the middle on average. It is about these items: their draws
    are the sample.
    """
    if not chosen:
        return Estimate(value=None, n=0, over=over)
    shares = [sum(value > one for one in some) / len(some) for value, some in zip(chosen, draws, strict=True)]
    value = mean(shares) - 0.5
    sums, chances = np.zeros(1), np.ones(1)
    for some in draws:
        places = np.arange(len(some) + 1) / len(some) - 0.5
        sums = (sums[:, None] + places).ravel()
        chances = (chances[:, None] * np.full(len(places), 1 / len(places))).ravel()
        sums, which = np.unique(sums.round(9), return_inverse=True)
        chances = np.bincount(which, chances)
    p = float(chances[np.abs(sums) >= abs(value) * len(shares) - 1e-6].sum())
    return Estimate(value=value, n=sum(map(len, draws)), over=over, method="permutation", p=min(1.0, p))


def percentile(value: float, draws: Any, **about: Any) -> Estimate:
    """A value with the interval between the 2.5th and 97.5th percentile of its bootstrap draws."""
    low, high = percentile_interval(np.asarray(draws, dtype=float))
    spread = float(np.std(draws, ddof=1))
    return Estimate(value=value, low=low, high=high, sd=spread, method="bootstrap", **about)


def bootstrap(
    statistic: Callable[..., float], *groups: np.ndarray, over: str, draws: int = 2000, seed: int = 0
) -> Estimate | None:
    """A statistic of groups of items (the first axis of each); every group's items are drawn anew (Efron 1979).

    None where it is not defined; draws in which it is not are left out.
    """
    value = statistic(*groups)
    if math.isnan(value):
        return None
    dice = np.random.default_rng(seed)
    drawn = [statistic(*(group[dice.integers(len(group), size=len(group))] for group in groups)) for _ in range(draws)]
    known = np.asarray(drawn, dtype=float)
    return percentile(value, known[~np.isnan(known)], n=min(map(len, groups)), over=over)


def slope(values: Sequence[float]) -> float:
    """Of the least-squares line through values at 1, 2, …, n."""
    return float(np.polyfit(np.arange(1, len(values) + 1), np.asarray(values, dtype=float), 1)[0])


def each(values: Any, function: Callable[[Any], float], over: str = "blocks") -> Estimate:
    """The mean of a statistic that is computed in each block (the first axis) by itself."""
    return mean_of([function(block) for block in values], over)


def _known(values: Any) -> list[float]:
    numbers = np.asarray(values, dtype=float).ravel()
    return numbers[~np.isnan(numbers)].tolist()


def _spearman(pairs: Float[np.ndarray, "draw item 2"]) -> Float[np.ndarray, " draw"]:
    """ρ of many samples at once; NaN where one side is constant."""
    from scipy.stats import rankdata

    ranks = rankdata(pairs, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).sum(axis=1).prod(axis=1))
    covariance = centred.prod(axis=2).sum(axis=1)
    return np.where(spread > 0, covariance / np.where(spread > 0, spread, 1), np.nan)
