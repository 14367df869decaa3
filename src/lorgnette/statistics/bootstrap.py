"""Bootstrap intervals: of any statistic, from items drawn with replacement. SciPy does the work."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from lorgnette.errors import UserError
from lorgnette.statistics.estimate import CONFIDENCE, Interval, tail_of_few

DRAWS = 2000


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
    if sample.shape[-1] < 2:
        raise UserError("A bootstrap draws texts with replacement, so it needs at least 2 of them.")
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


def percentile_interval(drawn: Float[np.ndarray, " draw"], items: int | None = None) -> Interval:
    """The middle 95 % of a bootstrap distribution; of few items, what Student's t takes for it (Hesterberg 2015).

        α' / 2 = Φ(−√(n / (n − 1)) · t(0.975, n − 1))

    The draws of n items spread too little by √((n − 1) / n), and the normal quantile is too small for them.
    """
    tail = (1 - CONFIDENCE) / 2 if items is None else tail_of_few(items)
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap_mean_interval(values: Float[np.ndarray, " item"], *, seed: int = 0) -> Interval:
    """The bootstrap interval of a mean of values that are far from normal, such as paired differences of 0 and 1."""
    return percentile_interval(bootstrap_draws(values, np.mean, seed=seed))
