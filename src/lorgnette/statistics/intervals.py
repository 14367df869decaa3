"""95 % intervals: of a mean (Student), of any statistic (bootstrap), of a correlation (Fisher). SciPy does the work."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

CONFIDENCE = 0.95
DRAWS = 2000
Interval = tuple[float, float]


def t_quantile(degrees: Float[np.ndarray, "*rest"]) -> Float[np.ndarray, "*rest"]:
    """Half the width of a 95 % interval in standard errors, by Student's t; NaN without a degree of freedom."""
    from scipy.stats import t

    return np.asarray(t.ppf((1 + CONFIDENCE) / 2, np.where(degrees > 0, degrees, np.nan)))


def t_interval(values: Sequence[float] | Float[np.ndarray, " item"]) -> Interval:
    """Of the mean: x̄ ± t(n − 1) · s/√n; NaN with fewer than two values. The values must be independent."""
    known = np.asarray(values, dtype=float)
    if len(known) < 2:
        return float("nan"), float("nan")
    mean, error = float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known)))
    half = float(t_quantile(np.array(len(known) - 1.0))) * error
    return mean - half, mean + half


def share_interval(count: int, total: int) -> Interval:
    """Of a share of independent items (Wilson 1927)."""
    from scipy.stats import binomtest

    low, high = binomtest(count, total).proportion_ci(CONFIDENCE, method="wilson")
    return float(low), float(high)


def bootstrap_draws(
    sample: Shaped[np.ndarray, "*rest item"],
    statistic: Callable[..., Any],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    vectorized: bool = True,
) -> Float[np.ndarray, "*result draw"]:
    """The statistic of items drawn with replacement (Efron 1979); one seed gives the same items to equal sizes.

    `statistic(sample, axis=-1)` reduces the last axis; without `vectorized` it is called with one drawn sample.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # about an interval that is not used here
        result = bootstrap(
            (sample,),
            statistic,
            axis=-1,
            n_resamples=draws,
            vectorized=vectorized,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    return np.asarray(result.bootstrap_distribution)


def percentile_interval(drawn: Float[np.ndarray, " draw"]) -> Interval:
    """The middle 95 % of a bootstrap distribution."""
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def bootstrap_mean_interval(values: Float[np.ndarray, " item"], *, seed: int = 0) -> Interval:
    """Of a mean, without the assumption that values are normal: paired differences of 0 and 1, say."""
    return percentile_interval(bootstrap_draws(values, np.mean, seed=seed))


def fisher_interval(correlation: float, error: float) -> Interval:
    """tanh(artanh ρ ± 1.96 · se/(1 − ρ²)): even on Fisher's scale, so that it stays within −1 and 1.

    `error` is the standard error of ρ itself (the delta method divides it by 1 − ρ²). NaN without one; ρ = ±1 has no
    width.
    """
    if np.isnan(error):
        return float("nan"), float("nan")
    if abs(correlation) > 1 - 1e-12:
        return correlation, correlation
    centre, half = np.arctanh(correlation), 1.96 * error / (1 - correlation**2)
    return float(np.tanh(centre - half)), float(np.tanh(centre + half))
