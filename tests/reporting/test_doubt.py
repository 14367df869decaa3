"""How sure a comparison is: against scipy one by one, planted differences, ties, and what has no error."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import false_discovery_control, t

from lorgnette.figures.doubt import extreme, head_extreme, layer_means, significantly_above
from lorgnette.statistics.estimate import Estimate


def test_the_test_is_that_of_a_loop():
    values, errors, counts = np.array([0.2, 0.5, 0.45, 0.1]), np.array([0.02, 0.03, 0.01, 0.05]), np.full(4, 12)
    found = extreme(Estimate(values, errors, counts))
    p = [2 * t.sf((0.5 - values[i]) / (0.03 + errors[i]), 11) for i in (0, 2, 3)]
    wanted = {i for i, one in zip((0, 2, 3), false_discovery_control(p), strict=True) if one >= 0.05}
    assert (found.place, set(found.tied)) == (1, wanted)
    assert found.half == pytest.approx(t.ppf(0.975, 11) * 0.03)
    assert found.beside("abcd") == ", not significantly above c (not paired)"


def test_the_smallest_and_one_that_stands_alone():
    found = extreme(Estimate(np.array([3.0, 1.0, 2.0]), np.full(3, 0.01), np.full(3, 50)), largest=False)
    assert found.place == 1
    assert found.beside("abc", "below") == ", significantly below all others"


def test_a_test_against_a_head_that_is_left_out_says_nothing_about_the_next():
    """Head 1.1 was largest when the lens paired the heads; without it, 1.2 and 2.1 cannot be told apart."""
    coords = {"layer": [1, 2], "head": [1, 2]}
    values, errors, q = (
        xr.DataArray(cells, dims=("layer", "head"), coords=coords)
        for cells in ([[1.0, 0.80], [0.79, 0.2]], [[1e-6, 0.015], [0.015, 0.01]], [[np.nan, 0.01], [0.01, 0.001]])
    )
    data = xr.Dataset({"x": values, "x_se": errors, "x_count": values.notnull() * 9, "x_top_q": q})
    best, names = head_extreme(data, "x")
    assert (names[best.place], best.beside(names)) == ("1.1", ", significantly above all others")
    best, names = head_extreme(data.assign(x=values.where(values < 0.9)), "x")
    assert (names[best.place], best.beside(names)) == ("1.2", ", not significantly above 2.1 (not paired)")


def test_without_errors_nothing_is_said():
    found = extreme(Estimate(np.array([3.0, 1.0]), np.full(2, np.nan), np.full(2, 9)))
    assert not found.comparable
    assert found.beside("ab") == ""


def test_equal_heads_are_rarely_told_apart():
    """Forty heads with one mean: the extreme of them is not significant, though it was chosen as the largest."""
    told = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        texts = rng.normal(size=(30, 40)) + rng.normal(size=(30, 1))
        mean, error = texts.mean(0), texts.std(0, ddof=1) / np.sqrt(30)
        told += len(extreme(Estimate(mean, error, np.full(40, 30))).tied) < 39
    assert told <= 10


def test_heads_by_name_and_means_of_layers():
    values = xr.DataArray([[0.1, 0.2], [0.9, np.nan]], dims=("layer", "head"), coords={"layer": [1, 2], "head": [1, 2]})
    data = xr.Dataset({"x": values, "x_se": values * 0 + 0.01, "x_count": values.notnull() * 9})
    best, names = head_extreme(data, "x")
    assert names == ["1.1", "1.2", "2.1"]
    assert names[best.place] == "2.1"
    layers = layer_means(data, "x")
    np.testing.assert_allclose(layers["value"], [0.15, 0.9])
    np.testing.assert_allclose(layers["value_se"], [0.01, 0.01])
    assert significantly_above(Estimate.of(data, "x"), 0.15) == 2  # 0.2 and 0.9, not the missing one


def test_two_means_differ_only_beyond_the_sum_of_their_errors():
    def told(one, other, texts=np.inf, what="difference"):
        return Estimate(*one, texts).minus_correlated(Estimate(*other, texts)).significant(what)

    assert told((1.0, 0.2), (0.0, 0.2)) == "; the difference is significant"  # 2.5 errors
    assert told((1.0, 0.3), (0.0, 0.3)) == "; the difference is not significant"  # 1.7
    assert told((1.0, 0.2), (0.0, 0.2), 4) == "; the difference is not significant"  # Student, four texts
    assert told((1.0, 0.0), (1.0, 0.0), what="change") == "; the change is not significant"
    assert told((1.0, float("nan")), (0.0, 0.1)) == ""
