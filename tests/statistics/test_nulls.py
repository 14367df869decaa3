"""Under a true null each test of the library claims something in 5 % of trials; `benchmarks.nulls` runs more."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from benchmarks.nulls import NULLS, Null, Rate, around_zero, rates
from lorgnette.statistics.estimate import LEVEL, Estimate

TRIALS = 50


def too_often(rate):
    """More claims than a test at the level would make but once in ten thousand times."""
    return binomtest(rate.claims, rate.trials, LEVEL, alternative="greater").pvalue < 1e-4


@pytest.mark.parametrize("null", NULLS, ids=lambda null: null.name)
def test_nothing_is_claimed_of_nothing(null):
    for rate in rates(TRIALS, null.name, sizes=2):
        assert not too_often(rate), (null.name, rate.size, rate.share)


def test_the_net_catches_what_was_wrong():
    """A normal test of few texts, and a test against the mean of random sets, as they were."""

    def normal(draw, texts):
        found = Estimate.mean(around_zero(draw, texts, 30).T)
        return bool((2 * norm.sf(np.abs(found.value / found.se)) < LEVEL / 30).any())

    def mean_of_sets(draw, texts):
        sets = draw.normal(size=9) + 0.1 * draw.normal(size=(texts, 9))
        return bool(Estimate.mean(sets[:, 0] - sets[:, 1:].mean(1)).p < LEVEL)

    draw = np.random.default_rng(0)
    for trial, texts in ((normal, 3), (mean_of_sets, 40)):
        claims = sum(trial(draw, texts) for _ in range(TRIALS))
        assert too_often(Rate(Null(trial.__name__, "", trial), texts, claims, TRIALS))
