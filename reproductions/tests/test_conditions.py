"""Random weights as a control, and intervals over blocks."""

import math

import numpy as np
import pytest
import scipy.stats
from subjects import bert

from lorgnette.looking.controls import with_random_weights
from reproductions.frame.readings import claim, interval, plain


def test_random_weights_are_seeded_and_random():
    subject = bert()
    one, same, other = (with_random_weights(subject, seed) for seed in (0, 0, 1))
    assert one.weights_hash == same.weights_hash
    assert len({subject.weights_hash, one.weights_hash, other.weights_hash}) == 3
    assert one.name.endswith("random weights")


def test_intervals_are_those_of_a_t_test():
    values = [0.1, 0.4, 0.35, 0.2]
    mean, low, high = interval(values)
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((np.mean(values), expected.low, expected.high))
    assert math.isnan(interval([0.3])[1])
    assert interval([None, 0.3, 0.3])[0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("estimate", "above", "said"),
    [
        ((-0.4, -0.5, -0.3), False, "holds"),
        ((-0.4, -0.5, -0.3), True, "does not hold"),
        ((-0.1, -0.3, 0.1), False, "cannot tell"),
        ((0.4, None, None), True, "cannot tell"),
    ],
)
def test_a_verdict_needs_the_whole_interval(estimate, above, said):
    assert claim("ρ", estimate, 0.0, above=above).verdict == said


def test_what_is_missing_is_none():
    assert plain([[1.0, math.nan], [0.5, 2.0]]) == [[1.0, None], [0.5, 2.0]]
