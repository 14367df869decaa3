"""Estimates, bootstrap intervals, ranks and entropy against what SciPy says in another way, or a slow replica."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

import lorgnette
from lorgnette.statistics.bootstrap import bootstrap_mean_interval, percentile_interval
from lorgnette.statistics.entropy import entropy, normalised_entropy
from lorgnette.statistics.estimate import Estimate, false_discovery_among
from lorgnette.statistics.rank_agreement import spearman_matrix
from lorgnette.statistics.spearman import spearman


def test_the_interval_of_a_mean_is_that_of_students_test():
    values = np.random.default_rng(0).normal(2.0, 3.0, 11)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert Estimate.mean(values).interval == pytest.approx((low, high), abs=1e-12)
    assert Estimate.mean([1.5, 1.5, 1.5]).interval == (1.5, 1.5)
    assert all(map(math.isnan, Estimate.mean([4.0]).interval))


def test_tests_are_those_of_scipy():
    draw = np.random.default_rng(5)
    one, other = draw.normal(0.4, 1.0, (3, 9)), draw.normal(0.0, 3.0, (3, 7))
    mine, theirs = Estimate.mean(one), Estimate.mean(other)
    np.testing.assert_allclose(mine.p, stats.ttest_1samp(one, 0.0, axis=1).pvalue)
    np.testing.assert_allclose(mine.p_above, stats.ttest_1samp(one, 0.0, axis=1, alternative="greater").pvalue)
    welch = stats.ttest_ind(one, other, axis=1, equal_var=False)
    apart = mine.minus_independent(theirs)
    np.testing.assert_allclose(apart.p, welch.pvalue)
    np.testing.assert_allclose([apart.low, apart.high], list(welch.confidence_interval()))
    gains = Estimate.mean(one[:, :7] - other)
    paired = Estimate.mean(one[:, :7]).minus_paired(theirs, gains.se)
    np.testing.assert_allclose(paired.p, stats.ttest_rel(one[:, :7], other, axis=1).pvalue)


@pytest.mark.parametrize("count", [2, 4, 500])
@pytest.mark.parametrize("effect", [0.0, 0.5, 5.0])
def test_a_few_q_of_a_large_family_are_those_of_scipy(count, effect):
    make = np.random.default_rng(count)
    value, error = make.normal(size=12_000) + effect * make.normal(size=12_000), make.uniform(0.5, 1.5, 12_000)
    value[:100], value[100:200], error[100:200] = value[200:300], 0.0, 0.0  # ties, and tests of nothing
    error[:100] = error[200:300]
    counts = np.full(12_000, float(count))
    asked = np.append(make.choice(12_000, 200, replace=False), [0, 150, int(np.abs(value / error.clip(1e-9)).argmax())])
    for degrees_differ in (False, True):  # where they do, all p are worked out
        counts[:50] -= degrees_differ and count > 2
        p = np.where(error > 0, 2 * stats.t.sf(np.abs(value) / error.clip(1e-300), counts - 1), 1.0)
        wanted = stats.false_discovery_control(p)[asked]
        found = false_discovery_among(Estimate(value, error, counts), asked)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300)
    value[7], error[7] = 1.0, 0.0  # all texts say the same: p is that of the sign test
    p[7] = 2.0 ** -(counts[7] - 1)
    found = false_discovery_among(Estimate(value, error, counts), np.arange(5, 9))
    np.testing.assert_allclose(found, stats.false_discovery_control(p)[5:9], rtol=1e-12)


def test_floats_arrays_and_labelled_arrays_give_the_same():
    value, se, count = np.array([0.3, -0.2, 0.0]), np.array([0.1, 0.2, np.nan]), np.array([5, 9, 1])
    bare = Estimate(value, se, count)
    labelled = Estimate(*(xr.DataArray(part, dims="head") for part in (value, se, count)))
    for name in ("half", "low", "high", "p", "p_above"):
        each = [getattr(Estimate(*map(float, cell)), name) for cell in zip(value, se, count, strict=True)]
        np.testing.assert_allclose(getattr(bare, name), each)
        assert getattr(labelled, name).dims == ("head",)
        np.testing.assert_array_equal(getattr(labelled, name).values, getattr(bare, name))


def test_texts_that_all_say_the_same_are_a_sign_test():
    """Two texts of the same value have no spread; they are two tosses of a coin, not certainty."""
    assert Estimate(0.5, 0.0, 2).p == stats.binomtest(2, 2).pvalue == 0.5
    assert Estimate(0.5, 0.0, 10).p == pytest.approx(stats.binomtest(10, 10).pvalue)
    assert Estimate(0.0, 0.0, 10).p == 1.0
    assert math.isnan(Estimate(0.5, math.nan, 1).p)


def test_one_place_has_the_quantiles():
    """No other module of the library holds a quantile, or asks SciPy for one."""
    for path in Path(lorgnette.__file__).parent.rglob("*.py"):
        if path.name != "estimate.py":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\b1\.96\b|\b1\.9599|\.ppf\(|stats import (.*, )?(t|norm)\b", text), path


def test_bootstrap_draws_are_means_of_drawn_items():
    values = np.random.default_rng(1).normal(size=17)
    chosen = np.random.default_rng(3).integers(17, size=(2000, 17))
    expected = np.quantile([values[some].mean() for some in chosen], [0.025, 0.975])
    assert bootstrap_mean_interval(values, seed=3) == pytest.approx(tuple(expected), abs=1e-12)
    assert percentile_interval(np.arange(1001.0)) == pytest.approx((25.0, 975.0))


def test_fishers_interval_is_scipys_for_a_pearson_correlation():
    draw = np.random.default_rng(2)
    one = draw.normal(size=60)
    other = 0.6 * one + draw.normal(size=60)
    found = stats.pearsonr(one, other)
    rho = float(found.statistic)
    error = (1 - rho**2) / math.sqrt(60 - 3)  # Fisher's z has the standard error 1/√(n − 3)
    low, high = found.confidence_interval(0.95)
    found = Estimate(rho, error, math.inf).correlation_interval  # infinitely many texts: SciPy's is normal
    assert found == pytest.approx((low, high), abs=2e-5)
    assert Estimate(1.0, 0.1, 60).correlation_interval == (1.0, 1.0)
    assert all(map(math.isnan, Estimate(0.2, math.nan, 60).correlation_interval))


def test_spearman_counts_pairs_where_there_are_no_ties():
    one, other = torch.tensor([1.0, 4.0, 2.0, 3.0]), torch.tensor([2.0, 8.0, 6.0, 1.0])
    ranks = [(1, 2), (4, 4), (2, 3), (3, 1)]
    expected = 1 - 6 * sum((a - b) ** 2 for a, b in ranks) / (4 * 15)  # Spearman 1904
    assert spearman(one, other) == pytest.approx(expected, abs=1e-12)
    assert spearman(one, torch.ones(4)) is None
    assert spearman(one[:1], other[:1]) is None
    assert spearman(one[:2], other[:2]) == pytest.approx(1.0)


def test_the_matrix_of_rank_correlations_is_spearmans_pair_by_pair():
    values = np.random.default_rng(4).normal(size=(3, 24))
    rho, (low, high) = spearman_matrix(values, draws=300)
    for a in range(3):
        for b in range(3):
            assert rho[a, b] == pytest.approx(stats.spearmanr(values[a], values[b]).statistic, abs=1e-12)
    assert (low <= rho + 1e-12).all()
    assert (rho <= high + 1e-12).all()


def test_entropy_is_the_sum_by_hand_and_its_gradient_is_finite_at_zero():
    rows = torch.tensor([[0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    by_hand = [sum(-p * math.log(p) for p in row if p > 0) for row in rows.tolist()]
    nats = entropy(rows)
    assert nats.tolist() == pytest.approx(by_hand, abs=1e-12)
    nats.sum().backward()
    assert torch.isfinite(rows.grad).all()
    assert normalised_entropy(nats, torch.tensor([3, 1])).tolist() == pytest.approx([by_hand[0] / math.log(3), 0.0])
