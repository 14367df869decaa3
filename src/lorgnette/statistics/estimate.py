"""A number measured on a sample, and how sure it is: the one place for standard errors, intervals and tests.

The sample is texts, unless a lens says otherwise (seeds, pairs of texts, heads). `LEVEL` and `CONFIDENCE` are the only
level and the only confidence in the library, and Student's t is the only distribution of a mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Integer

from lorgnette.axes import Selected

CONFIDENCE = 0.95
LEVEL = 0.05
"""The false discovery rate among differences called significant."""
Interval = tuple[float, float]
Numbers = Any
"""A float, a NumPy array or an xarray.DataArray."""
_ALMOST_ONE = 1 - 1e-12
_ROUNDING = 4 * np.finfo(float).eps
"""A standard error below this share of the value counts as zero."""
_LARGE, _APART, _SLACK = 10_000, 64, 1e-9
"""Tests of a large family, of which every so manyth p is known at first; what a p may be off by relatively."""


@dataclass(frozen=True)
class Estimate:
    """A mean (or what behaves like one), its standard error, and the number of texts behind it.

        value ± t(count − 1) · se        p = 2 · P(T > |value| / se)

    All three are floats, NumPy arrays or DataArrays, which broadcast. Without two texts there is no error, no interval
    and no p: they are NaN. `count` need not be whole: Welch's degrees of freedom are not. Where every text says the
    same, the error is zero and t is infinite, however few they are; p is then that of the sign test, 2^(1 − count), or
    1 where the value is zero too.

    What it does not tell you: texts are taken to be independent, and their mean to be about normal; with few texts of
    very uneven values, t intervals are too short.
    """

    value: Numbers
    se: Numbers
    count: Numbers

    @classmethod
    def of(cls, data: xr.Dataset, name: str, select: Mapping[str, Selected] | None = None) -> "Estimate":
        """Variable `name` of a result, with the `_se` and `_count` beside it; without them nothing is sure."""
        value = data[name].sel(select or {})
        beside = [f"{name}{tail}" for tail in ("_se", "_count")]
        se, count = (data[each].sel(select or {}) if each in data else value * np.nan for each in beside)
        return cls(value, se, count)

    @classmethod
    def mean(cls, values: "Sequence[float] | Float[np.ndarray, '*rest item']") -> "Estimate":
        """The mean of independent values, along the last axis: x̄, s/√n, n."""
        known = np.asarray(values, dtype=float)
        n = known.shape[-1]
        if n < 2:
            mean = known.mean(-1) if n else np.full(known.shape[:-1], np.nan)
            return cls(mean[()], np.full(known.shape[:-1], np.nan)[()], n)
        return cls(known.mean(-1)[()], (known.std(-1, ddof=1) / np.sqrt(n))[()], n)

    @classmethod
    def share(cls, hits: "Float[np.ndarray, '*rest']", items: "Float[np.ndarray, '*rest']") -> "Estimate":
        """The share of so many independent items that are hits: the mean of zeros and ones."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = hits / items
        return cls(share, error_of_sum(share * (1 - share) / items, items), items)

    @property
    def degrees(self) -> Numbers:
        """Degrees of freedom: count − 1; NaN below one."""
        return _each(lambda n: np.where(n > 1, n - 1.0, np.nan), self.count)

    @property
    def half(self) -> Numbers:
        """Half the width of the 95 % interval."""
        return _each(t_quantile, self.degrees) * self.se

    @property
    def low(self) -> Numbers:
        return self.value - self.half

    @property
    def high(self) -> Numbers:
        return self.value + self.half

    @property
    def interval(self) -> Interval:
        """Both ends, of a single number."""
        return float(self.low), float(self.high)

    @property
    def correlation_interval(self) -> Interval:
        """tanh(artanh ρ ± t · se/(1 − ρ²)) of a single correlation: even on Fisher's scale, so within −1 and 1.

        `se` is the standard error of ρ itself (the delta method divides it by 1 − ρ²). ρ = ±1 has no width.
        """
        if np.isnan(self.half):
            return float("nan"), float("nan")
        if abs(self.value) > _ALMOST_ONE:
            return float(self.value), float(self.value)
        centre, half = np.arctanh(self.value), self.half / (1 - self.value**2)
        return float(np.tanh(centre - half)), float(np.tanh(centre + half))

    def wilson(self, items: int) -> Interval:
        """The interval of a single share of so many items, which come in texts: Wilson's (1927), within 0 and 1.

            n = p (1 − p) / se²,    at most the number of items

        n is how many independent items the error stands for, and t takes the place of the normal quantile. Where all or
        none of the items are hits the error is 0 and says nothing; n is then the number of items.
        """
        share, error, quantile = (float(x) for x in (self.value, self.se, _each(t_quantile, self.degrees)))
        if items < 1 or np.isnan(share) or np.isnan(quantile):
            return float("nan"), float("nan")
        spread = share * (1 - share)
        size = items if not error > 0 or spread <= 0 else min(spread / error**2, items)
        middle = (share + quantile**2 / (2 * size)) / (1 + quantile**2 / size)
        half = quantile / (1 + quantile**2 / size) * np.sqrt(spread / size + quantile**2 / (4 * size**2))
        return min(max(0.0, float(middle - half)), share), max(min(1.0, float(middle + half)), share)

    @property
    def p(self) -> Numbers:
        """Two-sided p that the number is zero."""
        return _each(_two_sided, self.value, self.se, self.degrees)

    @property
    def p_above(self) -> Numbers:
        """One-sided p that the number is not above zero."""
        return _each(_above, self.value, self.se, self.degrees)

    def minus_paired(self, other: "Estimate | float", se: Numbers) -> "Estimate":
        """The difference of two numbers from the same texts, whose standard error is known from what each text says."""
        value, count = (other.value, other.count) if isinstance(other, Estimate) else (other, np.inf)
        return Estimate(self.value - value, se, _each(np.minimum, self.count, count))

    def minus_independent(self, other: "Estimate") -> "Estimate":
        """The difference of two numbers that share no text: √(se² + se²), with the degrees of Welch (1947)."""
        se = _each(np.hypot, self.se, other.se)
        count = _each(_welch, self.se, self.degrees, other.se, other.degrees)
        return Estimate(self.value - other.value, se, count)

    def minus_correlated(self, other: "Estimate | float") -> "Estimate":
        """The difference of two numbers from the same texts whose correlation is not known.

        Its standard error is taken to be the sum of both, the largest that it can be, so that a test of it errs less
        often than it says.
        """
        if not isinstance(other, Estimate):
            return Estimate(self.value - other, self.se, self.count)
        return self.minus_paired(other, self.se + other.se)

    def significant(self, what: str = "difference") -> str:
        """An ending for a sentence: "; the difference is significant" or its negation; empty without an error."""
        p = float(self.p)
        return "" if p != p else f"; the {what} is {'' if p < LEVEL else 'not '}significant"


def t_quantile(degrees: Float[np.ndarray, "*rest"]) -> Float[np.ndarray, "*rest"]:
    """Half the width of a 95 % interval in standard errors, by Student's t; NaN without a degree of freedom."""
    from scipy.stats import t

    return np.asarray(t.ppf((1 + CONFIDENCE) / 2, np.where(degrees > 0, degrees, np.nan)))


def tail_of_few(items: int) -> float:
    """The share of bootstrap draws of so few items beyond each end of a 95 % interval (Hesterberg 2015)."""
    from scipy.stats import norm

    return float(norm.cdf(-np.sqrt(items / (items - 1)) * t_quantile(np.array(items - 1.0))))


def share_interval(count: int, total: int) -> Interval:
    """The 95 % interval of a share of independent items (Wilson 1927)."""
    from scipy.stats import binomtest

    low, high = binomtest(count, total).proportion_ci(CONFIDENCE, method="wilson")
    return float(low), float(high)


def false_discovery(p: Numbers) -> Numbers:
    """p adjusted so that of all below q a share q at most is expected to be false (Benjamini and Hochberg 1995).

    All of `p` are one family; NaN stay NaN and do not count.
    """
    return _each(_benjamini_hochberg, p)


_NOTHING = 1e-7


def tested_together(data: xr.Dataset, names: Sequence[str]) -> dict[str, xr.DataArray]:
    """`_q` of several means: p that each is zero (t test), corrected over all their cells together.

    A cell below a ten millionth of the largest is something that is not there but for rounding. It counts for nothing,
    and its `_q_count` is 0.
    """
    found = {name: Estimate.of(data, name) for name in names}
    least = _NOTHING * max(float(np.nanmax(np.abs(each.value), initial=0.0)) for each in found.values())
    p = {name: np.where(np.abs(each.value) > least, each.p, np.nan) for name, each in found.items()}
    q = false_discovery(np.concatenate([values.ravel() for values in p.values()]))
    out: dict[str, xr.DataArray] = {}
    for (name, values), end in zip(p.items(), np.cumsum([values.size for values in p.values()]), strict=True):
        own = found[name].value.copy(data=q[end - values.size : end].reshape(values.shape))
        out |= {f"{name}_q": own, f"{name}_q_count": own.notnull().astype("int64")}
    return out


def false_discovery_among(family: Estimate, chosen: Integer[np.ndarray, " chosen"]) -> Float[np.ndarray, " chosen"]:
    """`false_discovery` of some of a family of tests, without the p of most others if the family is large.

        q_k = min over j ≥ k of p_j m / j,    where p_1 ≤ p_2 ≤ … ≤ p_m

    With as many degrees of freedom in every test, the order of |t| is that of p. Between two known p no other is below
    the first; tests among which nothing can be as small as the smallest known are left out, the others halved.
    """
    value, error, count = (np.asarray(each, dtype=float) for each in (family.value, family.se, family.count))
    certain = error <= _ROUNDING * np.abs(value)
    if value.size < _LARGE or not count.min() == count.max() > 1 or (certain & (value != 0)).any():
        return np.asarray(false_discovery(family.p))[chosen]
    from scipy.stats import t

    degrees, sizes = count.max() - 1, np.abs(value) / np.where(certain, 1.0, error)
    largest_first = np.sort(-sizes)
    place = np.searchsorted(largest_first, -sizes[chosen])
    return _false_discovery_at(place, len(sizes), lambda places: 2 * t.cdf(largest_first[places], degrees))


def _false_discovery_at(
    place: Integer[np.ndarray, " chosen"], tests: int, p_at: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, " chosen"]:
    """The adjusted p of these places among so many, in order."""
    known = np.unique(np.concatenate([np.arange(0, tests, _APART), place, [tests - 1]]))
    p, places = p_at(known), np.sort(place)
    while True:
        smallest = np.minimum.accumulate((p * (tests / (known + 1)))[::-1])[::-1]
        last = np.searchsorted(places, known[:-1], side="right") - 1  # whom those behind a known p can concern
        least = p[:-1] * (tests / known[1:]) * (1 - _SLACK)
        concerned = smallest[np.searchsorted(known, places[np.maximum(last, 0)])]
        halved = np.flatnonzero((np.diff(known) > 1) & (last >= 0) & (least <= concerned))
        if not len(halved):
            return np.minimum(smallest[np.searchsorted(known, place)], 1.0)
        between = (known[halved] + known[halved + 1]) // 2
        known, p = np.insert(known, halved + 1, between), np.insert(p, halved + 1, p_at(between))


def paired_error(
    before: Float[np.ndarray, "text *cell"],
    before_weight: Float[np.ndarray, "text *cell"],
    after: Float[np.ndarray, "text *cell"],
    after_weight: Float[np.ndarray, "text *cell"],
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """Standard error of M₂ − M₁, M = Σ w m / Σ w, and the number of texts it is over.

        r_t = w₂ (m₂ − M₂) / W₂ − w₁ (m₁ − M₁) / W₁        se² = n/(n−1) · Σ r_t²

    With equal weights this is the standard error of the mean of m₂ − m₁ (the paired t test), else the linearised one of
    two ratios. A text that one side does not have (weight 0) counts on the other alone. NaN below two texts.
    """
    terms = paired_terms(before, before_weight, after, after_weight)
    count = ((before_weight > 0) | (after_weight > 0)).sum(0).astype(float)
    error = error_of_terms(terms, count)
    known = (before_weight.sum(0) > 0) & (after_weight.sum(0) > 0)
    return np.where(known, error, np.nan), count


def paired_terms(
    before: Float[np.ndarray, "text *cell"],
    before_weight: Float[np.ndarray, "text *cell"],
    after: Float[np.ndarray, "text *cell"],
    after_weight: Float[np.ndarray, "text *cell"],
) -> Float[np.ndarray, "text *cell"]:
    """r_t of `paired_error`, what each text adds to the error; those of a mean over cells are the means of theirs."""
    return _residual(np.nan_to_num(after), after_weight) - _residual(np.nan_to_num(before), before_weight)


def error_of_terms(terms: Float[np.ndarray, "text *cell"], count: Numbers) -> Float[np.ndarray, "*cell"]:
    """√(n/(n−1) · Σ r_t²); NaN below two texts."""
    return error_of_sum(np.asarray((terms**2).sum(0)), np.asarray(count, dtype=float))


def error_of_sum(squares: Float[np.ndarray, "*cell"], count: Float[np.ndarray, "*cell"]) -> Float[np.ndarray, "*cell"]:
    """√(n/(n−1) · squares), of a sum of squares that is already known; NaN below two texts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count > 1, np.sqrt(count / (count - 1) * np.maximum(squares, 0.0)), np.nan)


def _residual(value: np.ndarray, weight: np.ndarray) -> np.ndarray:
    total = np.maximum(weight.sum(0), np.finfo(float).tiny)
    return weight * (value - (weight * value).sum(0) / total) / total


def _each(function: Callable[..., np.ndarray], *numbers: Numbers) -> Numbers:
    """A function of arrays, applied to floats, arrays or DataArrays alike."""
    if any(isinstance(each, xr.DataArray) for each in numbers):
        return xr.apply_ufunc(partial(_of_arrays, function), *numbers)
    out = _of_arrays(function, *numbers)
    return out if out.ndim else float(out)


def _of_arrays(function: Callable[..., np.ndarray], *numbers: Numbers) -> np.ndarray:
    return np.asarray(function(*(np.asarray(each, dtype=float) for each in numbers)))


def _two_sided(value: np.ndarray, se: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    from scipy.stats import t

    certain = se <= _ROUNDING * np.abs(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(certain, 0.0, np.abs(value / se))
    same = np.where(value == 0, 1.0, np.where(np.isnan(degrees), np.nan, 2.0**-degrees))
    return np.where(certain, same, 2 * t.sf(size, degrees))


def _above(value: np.ndarray, se: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    half = _two_sided(value, se, degrees) / 2
    return np.where(np.asarray(value) > 0, half, 1 - half)


def _welch(se: np.ndarray, degrees: np.ndarray, other: np.ndarray, other_degrees: np.ndarray) -> np.ndarray:
    """Degrees of freedom + 1; where neither side has a spread, the smaller number of texts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (se**2 + other**2) ** 2 / (se**4 / degrees + other**4 / other_degrees)
    return np.asarray(1.0 + np.where((se == 0) & (other == 0), np.minimum(degrees, other_degrees), found))


def _benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    from scipy.stats import false_discovery_control

    out, known = np.array(p, dtype=float), ~np.isnan(p)
    if known.any():
        out[known] = false_discovery_control(out[known])
    return out
