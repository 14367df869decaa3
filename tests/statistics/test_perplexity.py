"""Perplexity and its intervals against loops."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from lorgnette.errors import UserError
from lorgnette.statistics.perplexity import Likelihoods, difference


def some(seed, size=40, shift=0.0):
    draw = np.random.default_rng(seed)
    tokens = np.random.default_rng(5).integers(3, 30, size)
    return Likelihoods(tokens * (3 + shift + 0.3 * draw.standard_normal(size)), tokens)


def test_it_is_the_mean_over_tokens():
    found = some(0)
    total = count = 0.0
    for loss, tokens in zip(found.losses.tolist(), found.tokens.tolist(), strict=True):
        total, count = total + loss, count + tokens
    assert found.perplexity == pytest.approx(math.exp(total / count))
    assert Likelihoods(np.array([math.log(7) * 4]), np.array([4])).perplexity == pytest.approx(7)


def test_draws_are_texts_drawn_with_replacement():
    found = some(1, size=12)
    draws = found.draws(4000)
    generator = np.random.default_rng(9)
    own = []
    for _ in range(4000):
        texts = generator.integers(0, 12, 12).tolist()
        own.append(math.exp(sum(found.losses[n] for n in texts) / sum(found.tokens[n] for n in texts)))
    assert draws.mean() == pytest.approx(np.mean(own), rel=0.01)
    assert draws.std() == pytest.approx(np.std(own), rel=0.08)
    low, high = found.interval
    assert low < found.perplexity < high


def test_a_difference_is_paired():
    """The same texts are drawn for both, so what they have in common does not widen the interval."""
    base = some(2)
    worse = Likelihoods(base.losses + 0.1 * base.tokens, base.tokens)
    value, (low, high) = difference(worse, base)
    assert value == pytest.approx(base.perplexity * (math.exp(0.1) - 1))
    assert 0 < low < value < high
    assert high - low < 0.2 * (base.interval[1] - base.interval[0])
    assert difference(base, base) == (0.0, (0.0, 0.0))
    with pytest.raises(UserError, match="the same tokens"):
        difference(base, some(2, size=39))


@pytest.mark.parametrize(("size", "tail"), [(2, 1.9e-72), (5, 0.00095), (10, 0.00855), (1000, 0.02486)])
def test_few_texts_have_wider_intervals(size, tail):
    """The level at which t with n − 1 degrees, times √(n/(n−1)), stands in the normal distribution."""
    found = some(3, size=size)
    draws = np.sort(found.draws())
    low, high = found.interval
    assert (low, high) == pytest.approx(np.quantile(draws, [tail, 1 - tail]), rel=1e-3)
    assert norm.cdf(-math.sqrt(size / (size - 1)) * t.ppf(0.975, size - 1)) == pytest.approx(tail, rel=0.02)


def test_equal_models_rarely_differ():
    """Ten texts: the plain percentile interval misses a difference of zero in a tenth of the trials."""
    draw, misses, plain = np.random.default_rng(0), 0, 0
    for _ in range(300):
        tokens, easy = draw.integers(5, 60, 10), draw.normal(3, 0.8, 10)
        pair = [Likelihoods(tokens * (easy + 0.3 * draw.standard_normal(10)), tokens) for _ in range(2)]
        low, high = difference(*pair)[1]
        misses += not low <= 0 <= high
        low, high = np.quantile(pair[0].draws() - pair[1].draws(), [0.025, 0.975])
        plain += not low <= 0 <= high
    assert misses <= 24  # 15 expected at 5 %
    assert plain > misses
