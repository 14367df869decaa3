"""Bootstrap intervals against the whole bootstrap distribution: every sample that can be drawn, counted."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from lorgnette.errors import UserError
from lorgnette.lens.patching.lens import ratio_of_sums
from lorgnette.statistics.bootstrap import DRAWS, bootstrap_draws, bootstrap_mean_interval, percentile_interval
from lorgnette.statistics.perplexity import Likelihoods

SPREAD = 4.5 * (0.025 * 0.975 / DRAWS) ** 0.5
"""How far the level of a bound over DRAWS draws may be from 2.5 %."""


def every(items, statistic):
    """The statistic of all nⁿ samples with replacement."""
    return np.array([statistic(items[list(drawn)]) for drawn in product(range(len(items)), repeat=len(items))])


def assert_bounds(found, distribution):
    """Each bound has 2.5 % of the exact distribution beyond it, up to the draws; values that tie count half-way."""
    for bound, beyond in ((found[0], distribution < found[0]), (found[1], distribution > found[1])):
        at = np.isclose(distribution, bound, rtol=0, atol=1e-12)
        assert beyond[~at].sum() / len(beyond) <= 0.025 + SPREAD
        assert (beyond | at).mean() >= 0.025 - SPREAD


@pytest.mark.parametrize("values", [(0.3, -1.2, 2.5, 0.9, 0.1), (1.0, 0.0, 0.0, 1.0, 0.0)], ids=["skewed", "binary"])
def test_the_interval_of_a_mean(values):
    items = np.array(values)
    exact = every(items, np.mean)
    for seed in range(3):
        assert_bounds(bootstrap_mean_interval(items, seed=seed), exact)
    drawn = bootstrap_draws(items, np.mean, draws=20_000)
    assert drawn.mean() == pytest.approx(items.mean(), abs=4.5 * items.std() / 5**0.5 / 20_000**0.5)
    assert drawn.std() == pytest.approx(items.std() / 5**0.5, rel=0.03)  # σ̂ / √n, with the plug-in σ̂


def test_the_interval_of_a_ratio_of_sums():
    """Linearised over pairs: the error of Σ change / Σ whole is that of the mean of change − ratio · whole."""
    change, whole = [0.2, 0.9, 0.1, 0.6, 0.4], [1.0, 1.5, 0.8, 0.7, 2.0]
    ratio = 2.2 / 6.0
    squares = sum((one - ratio * other) ** 2 for one, other in zip(change, whole, strict=True))
    half = stats.t.ppf(0.975, 4) * (squares / 4 / 5) ** 0.5 / (6.0 / 5)
    assert ratio_of_sums(np.array(change), np.array(whole)) == pytest.approx((ratio, ratio - half, ratio + half))


def test_95_of_100_intervals_hold_the_truth():
    """Over many samples of thirty, which is about where the percentile method comes close to its level."""
    draw = np.random.default_rng(0)
    samples = draw.exponential(size=(300, 30))
    held = [low <= 1.0 <= high for low, high in (bootstrap_mean_interval(one) for one in samples)]
    low, high = stats.binomtest(285, 300).proportion_ci(0.999)
    assert low - 0.03 <= np.mean(held) <= high  # a percentile interval of a skewed mean is a little short


def test_quantiles_of_draws_are_those_of_the_sorted_list():
    drawn = np.random.default_rng(1).normal(size=401)
    ordered = sorted(drawn.tolist())
    assert percentile_interval(drawn) == pytest.approx((ordered[10], ordered[390]), abs=1e-12)  # 0.025 · 400 = 10


def test_one_item_has_no_interval():
    with pytest.raises(UserError, match="at least 2"):
        bootstrap_draws(np.zeros(1), np.mean)
    with pytest.raises(UserError, match="at least 2"):
        _ = Likelihoods(np.array([3.0]), np.array([2])).interval
