"""Paired tests between heads against SciPy, one pair at a time; weights, pivots, merging; planted and control."""

from itertools import combinations

import numpy as np
import pytest
import torch
from paired_oracle import paired_q
from scipy.stats import false_discovery_control, ttest_rel
from tiny import subject

from lorgnette import axes
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs

DRAWN = np.random.default_rng(0)
TINY = subject("bert")  # three layers of four heads


class Ranking(Lens):
    name = "ranking"

    def allocate(self, subject):
        self.moments = Moments(self, ("other", "x"), {axes.CATEGORY: ("a", "b")})
        self.pairs = Pairs(self.moments, "x", {axes.CATEGORY: "b"})
        self.every = Moments(self, "y", {axes.CATEGORY: ("a", "b")})
        self.each = Pairs(self.every, "y")

    def compute(self):
        return self.result(self.pairs.q())


def ranked(values, weights=None, batches=1):
    """A lens that has seen these values [text site head category], in so many batches."""
    lens = Ranking()
    lens.bind(TINY)
    weights = np.ones_like(values) if weights is None else weights
    for some, w in zip(np.array_split(values, batches), np.array_split(weights, batches), strict=True):
        pairs = {n: (torch.from_numpy(some[:, n]), torch.from_numpy(w[:, n])) for n in range(3)}
        for number, site in enumerate(lens.sites):
            lens.moments.add(site, x=pairs[number], other=pairs[number])
        stacked = [torch.stack([pairs[n][which] for n in range(3)]) for which in (0, 1)]
        lens.every.add_sites(lens.sites, y=tuple(stacked))
        lens.states.commit()
    return lens


@pytest.mark.parametrize("batches", [1, 4])
def test_q_is_that_of_scipys_paired_tests(batches):
    values = 5 + DRAWN.normal(size=(30, 3, 4, 2)) + DRAWN.normal(size=(30, 1, 1, 1))
    values[:, 1, 2] += 0.8
    found = ranked(values, batches=batches).pairs.q()
    flat = values[..., 1].reshape(30, 12)
    best = int(flat.mean(0).argmax())
    raw = {(a, b): ttest_rel(flat[:, a], flat[:, b]).pvalue for a, b in combinations(range(12), 2)}
    q = dict(zip(raw, false_discovery_control(list(raw.values())), strict=True))
    wanted = [np.nan if n == best else q[min(n, best), max(n, best)] for n in range(12)]
    assert found["x_top_q"].dims == ("stack", "layer", "head")
    np.testing.assert_allclose(found["x_top_q"].values.ravel(), wanted, rtol=1e-9)
    assert found["x_top_q_count"].values.ravel().tolist() == [0 if n == best else 30 for n in range(12)]


def test_weights_differ_and_texts_are_missing():
    values, weights = DRAWN.normal(size=(25, 3, 4, 2)), DRAWN.integers(1, 9, size=(25, 3, 4, 2)).astype(float)
    flat, w = (part[..., 1].reshape(25, 12) for part in (values, weights))
    for largest, name in ((True, "x_top_q"), (False, "x_bottom_q")):
        found = ranked(values, weights).pairs.q(largest=largest)
        np.testing.assert_allclose(found[name].values.ravel(), paired_q(flat, w, largest=largest), rtol=1e-9)
    weights[:, 2, 3] = 0.0  # a head without a text
    values[:, 2, 3] = np.nan
    found = ranked(values, weights).pairs.q()
    assert np.isnan(found["x_top_q"].values[0, 2, 3])
    assert np.isfinite(found["x_top_q"].values).sum() == 10
    weights[:5, 0, 0] = 0.0  # five texts that one head lacks
    assert ranked(values, weights).pairs.q()["x_top_q_count"].values[0, 0, 0] == 20


def test_labels_are_slices_of_their_own_and_layers_are_means_of_heads():
    values = DRAWN.normal(size=(20, 3, 4, 2)) + DRAWN.normal(size=(20, 1, 1, 1))
    lens = ranked(values)
    found = lens.each.q()["y_top_q"]
    for number, label in enumerate(("a", "b")):
        flat = values[..., number].reshape(20, 12)
        wanted = paired_q(flat)
        np.testing.assert_allclose(found.sel(category=label).values.ravel(), wanted, rtol=1e-9)
    layers = values[..., 1].mean(2)
    found = lens.pairs.q(layers=True, largest=False)["layer_x_bottom_q"]
    assert found.dims == ("stack", "layer")
    wanted = paired_q(layers, largest=False)
    np.testing.assert_allclose(found.values.ravel(), wanted, rtol=1e-9)


def test_sizes_of_signed_means():
    values = DRAWN.normal(size=(20, 3, 4, 2)) + DRAWN.choice([-1, 1], size=(1, 3, 4, 2))
    flat = values[..., 1].reshape(20, 12)
    flat = flat * np.sign(flat.mean(0))
    found = ranked(values).pairs.q(size=True)["x_top_q"].values.ravel()
    np.testing.assert_allclose(found, paired_q(flat), rtol=1e-9)


def test_states_of_other_pivots_merge():
    values = 1e6 + DRAWN.normal(size=(24, 3, 4, 2))  # a spread that sums of squares about zero would lose
    whole, parts = ranked(values), [ranked(some) for some in np.array_split(values, 3)]
    parts[0].merge_state(parts[1])
    parts[0].merge_state(parts[2])
    one, other = (lens.pairs.q()["x_top_q"].values for lens in (whole, parts[0]))
    np.testing.assert_allclose(one, other, rtol=1e-6)
    flat = values[..., 1].reshape(24, 12)
    np.testing.assert_allclose(one.ravel(), paired_q(flat), rtol=1e-6)


def test_equal_heads_do_not_differ():
    values = np.repeat(DRAWN.normal(size=(9, 1, 1, 1)), 24, 1).reshape(9, 3, 4, 2)
    q = ranked(values).pairs.q()["x_top_q"].values.ravel()
    assert np.nanmin(q) == 1.0


@pytest.mark.parametrize("batches", [1, 3])
def test_rounding_is_no_spread(batches):
    """The same text nine times: the last bit of its numbers depends on its batch, and no test may."""
    constant = np.broadcast_to(DRAWN.uniform(0.1, 1, size=(1, 3, 4, 2)), (9, 3, 4, 2)).copy()
    rounded = constant * (1 + np.finfo(float).eps * DRAWN.integers(0, 2, constant.shape))
    one, other = (ranked(values, batches=batches).pairs.q()["x_top_q"].values for values in (constant, rounded))
    np.testing.assert_array_equal(one, other)


def test_one_text_has_no_test():
    assert np.isnan(ranked(DRAWN.normal(size=(1, 3, 4, 2))).pairs.q()["x_top_q"].values).all()


def test_a_planted_head_is_told_apart_and_equal_ones_rarely_are():
    """What all heads share of a text is ten times what sets them apart: unpaired, nothing could be told."""
    told = 0
    for _ in range(30):
        values = 10 * DRAWN.normal(size=(30, 1, 1, 1)) + DRAWN.normal(size=(30, 3, 4, 2))
        told += bool((ranked(values).pairs.q()["x_top_q"] < 0.05).any())
        values[:, 1, 1] += 2.0
        planted = ranked(values).pairs.q()["x_top_q"].values.ravel()
        assert (np.delete(planted, 5) < 0.05).all()
    assert told <= 5


def test_sites_of_different_texts_are_refused():
    lens = Ranking()
    lens.bind(TINY)
    for number, site in enumerate(lens.sites):
        part = torch.zeros(2 + number, 4, 2)
        lens.moments.add(site, x=(part, torch.ones_like(part)))
    with pytest.raises(ValueError, match="cannot be paired"):
        lens.states.commit()


def test_a_mean_of_exactly_zero_is_compared_by_size():
    """A head that does nothing in any text is told from one that does something in all."""
    values = np.random.default_rng(1).normal(size=(12, 3, 4, 2)) * 0.1
    values[:, 0, 0] += 3.0
    values[:, 0, 1] = 0.0
    q = ranked(values).pairs.q(size=True)["x_top_q"].values[0]
    assert np.isnan(q[0, 0])  # the largest itself
    assert q[0, 1] < 1e-6
