"""The standard error of a rank correlation over texts, against resampling the texts."""

import numpy as np
import pytest
import torch
from scipy import stats

from lorgnette.statistics.rank_error import spearman_with_error


def some_texts(rng, texts=60, ties=False, link=0.6):
    """Items of one text share something, so that they are not independent."""
    sizes = rng.integers(2, 12, texts)
    text = np.repeat(np.arange(texts), sizes)
    shared = rng.normal(size=texts)[text]
    x = shared + rng.normal(size=len(text))
    y = link * x + 0.8 * shared + rng.normal(size=len(text))
    if ties:
        x, y = np.round(x), np.round(y * 2)
    return x, y, text


def found(x, y, text):
    return spearman_with_error(torch.tensor(x), torch.tensor(y), torch.tensor(text))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("link", [0.0, 0.6, 2.0])
def test_it_agrees_with_the_bootstrap_over_texts(ties, link):
    rng = np.random.default_rng(1)
    x, y, text = some_texts(rng, ties=ties, link=link)
    rho, error, texts = found(x, y, text)
    assert texts == 60
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    members = [np.flatnonzero(text == t) for t in range(60)]
    again = []
    for _ in range(800):
        drawn = np.concatenate([members[t] for t in rng.integers(0, 60, 60)])
        again.append(stats.spearmanr(x[drawn], y[drawn]).statistic)
    assert error == pytest.approx(np.std(again), rel=0.15)


def test_it_is_the_slope_of_the_correlation():
    """Adding an item again moves ρ by ψ/N: the sum over texts of one item each must be the jackknife's, nearly."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 400))
    y = y + x
    _, error, _ = found(x, y, np.arange(400))
    left_out = [stats.spearmanr(np.delete(x, k), np.delete(y, k)).statistic for k in range(400)]
    jackknife = np.sqrt(399 / 400 * np.sum((left_out - np.mean(left_out)) ** 2))
    assert error == pytest.approx(jackknife, rel=0.03)


def test_copies_of_one_text_are_surer_only_as_texts():
    rng = np.random.default_rng(3)
    x, y, text = some_texts(rng, texts=30)
    once = found(x, y, text)
    twice = found(np.tile(x, 2), np.tile(y, 2), np.tile(text, 2))  # the same texts, each twice as long
    assert twice[0] == pytest.approx(once[0], abs=1e-9)
    assert twice[1] == pytest.approx(once[1], rel=1e-6)


def test_no_ranks_and_one_text():
    one = torch.ones(4, dtype=torch.float64)
    assert spearman_with_error(one, torch.arange(4.0).double(), torch.zeros(4, dtype=torch.long)) is None
    rho, error, texts = found(np.arange(4.0), np.arange(4.0), np.zeros(4, dtype=int))
    assert (rho, texts) == (pytest.approx(1.0), 1)
    assert np.isnan(error)
