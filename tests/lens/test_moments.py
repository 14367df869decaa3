"""Means and standard errors against the formulas written out; labels, merging, and spreads tiny beside the mean."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from tiny import bert

from lorgnette import axes
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments

KINDS = ("word", "mark", "other")


class Made(Lens):
    name = "made"

    def allocate(self, subject):
        self.of_heads = Moments(self, ("x", "y"), {axes.CATEGORY: KINDS})
        self.of_layers = Moments(self, "z", at="layer")
        self.of_corpus = Moments(self, "w", {axes.CATEGORY: KINDS}, at="corpus")

    def compute(self):
        return self.result(self.of_heads.arrays())


def made():
    lens = Made()
    lens.bind(bert())
    return lens


def oracle(values, weights):
    """Mean and standard error in exact arithmetic."""
    pairs = [(Fraction(v), Fraction(w)) for v, w in zip(values, weights, strict=True) if w > 0]
    total = sum(w for _, w in pairs)
    mean = sum(w * v for v, w in pairs) / total
    n = len(pairs)
    square = Fraction(n, n - 1) * sum(w**2 * (v - mean) ** 2 for v, w in pairs) / total**2
    return float(mean), float(square) ** 0.5, n


@pytest.mark.parametrize("mean", [0.0, 1.0, -3e5])
@pytest.mark.parametrize("sd", [1.0, 1e-3, 1e-7, 1e-10])
@pytest.mark.parametrize("by", ["text", "token"])
def test_a_spread_that_is_tiny_beside_the_mean_is_seen(mean, sd, by):
    generator = torch.Generator().manual_seed(0)
    values = mean + sd * abs(mean or 1.0) * torch.randn(40, generator=generator, dtype=torch.float64)
    weights = torch.ones(40) if by == "text" else torch.randint(0, 30, (40,), generator=generator)
    lens = made()
    for part in (slice(0, 7), slice(7, 8), slice(8, 40)):
        lens.of_corpus.add(w=(values[part, None].expand(-1, 3), weights[part, None]))
    found = lens.of_corpus.arrays()
    expected = oracle(values.tolist(), weights.tolist())
    for name, value in zip(("w", "w_se", "w_count"), expected, strict=True):
        assert found[name].sel({axes.CATEGORY: "mark"}).item() == pytest.approx(
            value, rel=1e-12 if name == "w" else 1e-4
        )


def test_equal_values_have_no_spread_and_one_text_has_no_error():
    lens = made()
    lens.of_corpus.add(w=(torch.full((5, 3), 0.1), torch.tensor([[1.0, 0.0, 1.0]] * 4 + [[1.0, 1.0, 1.0]])))
    found = lens.of_corpus.arrays()
    assert found["w_se"].values[[0, 2]].tolist() == [0.0, 0.0]
    assert np.isnan(found["w_se"].values[1])
    assert found["w_count"].values.tolist() == [5, 1, 5]


def test_merging_is_as_if_all_texts_had_come_to_one():
    generator = torch.Generator().manual_seed(1)
    values = 1e4 + torch.randn(30, 2, 3, generator=generator, dtype=torch.float64)
    weights = torch.randint(0, 3, (30, 2, 3), generator=generator).double()
    whole, parts = made(), [made() for _ in range(4)]
    sites = whole.sites
    for lens, chosen in [
        (whole, slice(None)),
        *zip(parts, (slice(0, 0), slice(0, 1), slice(1, 20), slice(20, 30)), strict=True),
    ]:
        lens.of_heads.add(sites[1], x=(values[chosen], weights[chosen]), y=(-values[chosen], weights[chosen]))
    for order in (parts, parts[::-1]):
        first = made()
        for other in order:
            first.merge_state(other)
        for name, array in whole.of_heads.arrays().items():
            np.testing.assert_allclose(first.of_heads.arrays()[name].values, array.values, rtol=1e-9, err_msg=name)


def test_arrays_are_labelled_and_a_variable_may_come_alone():
    lens = made()
    site = lens.sites[0]
    values = torch.arange(2 * lens.heads * 3).view(2, lens.heads, 3).double()
    lens.of_heads.add(site, y=(values, torch.ones(2, 1, 1)))
    lens.of_layers.add(site, z=(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])))
    found = lens.of_heads.arrays() | lens.of_layers.arrays()
    assert found["y"].dims == (*axes.PER_HEAD, axes.CATEGORY)
    assert found["y"].sel(stack="encoder", layer=1, head=2, category="mark").item() == values[:, 1, 1].mean()
    assert found["x_count"].sum() == 0
    assert found["z"].dims == axes.PER_HEAD[:2]
    assert found["z"].sel(stack="encoder", layer=1).item() == 2.0
    assert lens.of_heads.weights()["y"].sel(layer=1, head=1, category="word").item() == 2.0


def test_two_states_of_one_name_are_refused():
    lens = made()
    with pytest.raises(ValueError, match="x_totals"):
        Moments(lens, "x")
