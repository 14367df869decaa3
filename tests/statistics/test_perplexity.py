"""Perplexity and its intervals against loops."""

import math

import numpy as np
import pytest

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
        own.append(math.exp(sum(found.losses[t] for t in texts) / sum(found.tokens[t] for t in texts)))
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
