"""Replaced weights against loops, and the law that makes them matter little: a narrow cone of values."""

import math

import pytest
import torch

from lorgnette.attending.scores import Scores
from lorgnette.lens.convexity.formulas import angle, cone
from reproductions.fosse2023.attention.replaced import all_on_least, permuted, uniform


@pytest.fixture
def seen() -> torch.Tensor:
    lengths = torch.tensor([5, 1, 3])
    return (torch.arange(5) < lengths[:, None])[:, None, None].expand(-1, -1, 4, -1)


@pytest.fixture
def weights(seen) -> torch.Tensor:
    scores = torch.randn(3, 1, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def test_uniform_weights_are_even_over_what_is_seen(seen):
    assert uniform(seen)[0, 0, 0].tolist() == pytest.approx([0.2] * 5)
    assert uniform(seen)[2, 0, 3].tolist() == pytest.approx([1 / 3] * 3 + [0, 0])
    assert uniform(torch.zeros(1, 1, 1, 2, dtype=torch.bool)).sum() == 0


def test_permuted_rows_hold_the_same_weights_elsewhere(weights, seen):
    out = permuted(weights, seen, torch.Generator().manual_seed(1))
    assert torch.equal(out.sort(-1).values, weights.sort(-1).values)
    assert bool((out[~seen] == 0).all())
    assert not torch.equal(out, weights)
    assert torch.equal(out, permuted(weights, seen, torch.Generator().manual_seed(1)))
    # Each row has its own order, else permuting would be relabelling the keys.
    base = weights[:1, :, :1].expand(1, 1, 4, 5)
    assert len({tuple(row.tolist()) for row in permuted(base, seen[:1], torch.Generator().manual_seed(2))[0, 0]}) > 1


def test_permutation_is_fair():
    """Every key of a row gets the largest weight equally often."""
    base = torch.tensor([0.7, 0.2, 0.1]).expand(1, 1, 6000, 3)
    out = permuted(base, torch.ones(1, 1, 6000, 3, dtype=torch.bool), torch.Generator().manual_seed(3))
    share = (out[0, 0] > 0.5).double().mean(0)
    assert share.tolist() == pytest.approx([1 / 3] * 3, abs=0.03)


def test_all_on_least_is_the_minimum_over_the_simplex(seen):
    values = torch.randn(3, 1, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    chosen = (all_on_least(values, seen) * values).sum(-1)
    for text in range(3):
        for row in range(4):
            assert chosen[text, 0, row] == min(values[text, 0, row][seen[text, 0, row]].tolist())
    inside = torch.rand(200, 3, 1, 4, 5, dtype=torch.float64) * seen
    inside = inside / inside.sum(-1, keepdim=True)
    assert bool(((inside * values).sum(-1) >= chosen - 1e-12).all())


@pytest.mark.parametrize("degrees", [1.0, 20.0, 60.0])
def test_values_within_an_angle_of_their_mean_keep_every_mix_within_it(degrees):
    """The planted law of the title: however weights are replaced, y stays within the widest angle of the cone."""
    generator = torch.Generator().manual_seed(5)
    theta, keys, dim = math.radians(degrees), 40, 16
    axis = torch.zeros(dim, dtype=torch.float64)
    axis[0] = 1.0
    around = torch.randn(keys // 2, dim, dtype=torch.float64, generator=generator)
    around[:, 0] = 0.0
    around = around / around.norm(dim=-1, keepdim=True)
    # Pairs on opposite sides of the axis, all of one length: their mean lies on it, each at the angle θ from it.
    value = torch.cat([axis * math.cos(theta) + sign * around * math.sin(theta) for sign in (1, -1)])[None, None]
    query = torch.randn(1, 1, 7, dim, dtype=torch.float64, generator=generator)
    found = cone(Scores(query, value, 1.0), value)
    assert float(found.widest.max()) == pytest.approx(theta, abs=1e-6)
    mean = found.mean.expand(1, 1, 7, dim)
    seen = torch.ones(1, 1, 7, keys, dtype=torch.bool)
    sharp = (torch.randn(1, 1, 7, keys, dtype=torch.float64, generator=generator) * 9).softmax(-1)
    against = torch.randn(1, 1, 7, dim, dtype=torch.float64, generator=generator) @ value.transpose(-1, -2)
    for mix in (sharp, uniform(seen).double(), permuted(sharp, seen, generator), all_on_least(against, seen)):
        turned = angle(mix @ value, mean)
        assert float(turned.max()) <= theta + 1e-7
    # The bound is reached: all weight on one key.
    assert float(angle(all_on_least(against, seen) @ value, mean).max()) == pytest.approx(theta, abs=1e-6)
