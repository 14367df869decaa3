"""The hard concrete distribution against METHODS' Monte-Carlo figures and a loop in float64."""

import math

import pytest
import torch

from lorgnette.training.gates.hard_concrete import deterministic, probability_one, probability_open, sampled

STRETCH = (-0.1, 1.1)


def gate_oracle(log_alpha, u, beta, low=-0.1, high=1.1):
    u = u * (1 - 2e-6) + 1e-6
    s = 1 / (1 + math.exp(-(math.log(u) - math.log(1 - u) + log_alpha) / beta))
    return min(1.0, max(0.0, s * (high - low) + low))


@pytest.mark.parametrize("beta", [0.33, 2 / 3])
def test_samples_follow_the_formula(beta):
    draw = torch.Generator().manual_seed(0)
    log_alpha = torch.randn(200, generator=draw, dtype=torch.float64) * 3
    u = torch.rand(200, generator=draw, dtype=torch.float64)
    expected = [gate_oracle(float(a), float(x), beta) for a, x in zip(log_alpha, u, strict=True)]
    assert torch.allclose(sampled(log_alpha, u, beta, STRETCH), torch.tensor(expected).double(), atol=1e-12)


@pytest.mark.parametrize(
    ("log_alpha", "zero", "one"), [(0.0, 0.16818, 0.16818), (1.0, 0.0692, 0.3547), (-2.0, 0.5990, 0.0266)]
)
def test_probabilities_are_the_monte_carlo_figures(log_alpha, zero, one):
    at = torch.tensor(log_alpha, dtype=torch.float64)
    assert 1 - probability_open(at, 2 / 3, STRETCH).item() == pytest.approx(zero, abs=6e-4)
    assert probability_one(at, 2 / 3, STRETCH).item() == pytest.approx(one, abs=6e-4)


def test_probability_open_at_zero_for_both_temperatures():
    zero = torch.zeros((), dtype=torch.float64)
    assert probability_open(zero, 0.33, STRETCH).item() == pytest.approx(0.6881, abs=5e-5)
    assert probability_open(zero, 2 / 3, STRETCH).item() == pytest.approx(0.8318, abs=5e-5)


@pytest.mark.parametrize("beta", [0.33, 2 / 3])
@pytest.mark.parametrize("log_alpha", [-2.0, 0.0, 1.0, math.log(11)])
def test_probabilities_are_shares_of_samples(beta, log_alpha):
    u = torch.rand(400_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    at = torch.full_like(u, log_alpha)
    z = sampled(at, u, beta, STRETCH)
    assert (z != 0).double().mean().item() == pytest.approx(probability_open(at[0], beta, STRETCH).item(), abs=4e-3)
    assert (z == 1).double().mean().item() == pytest.approx(probability_one(at[0], beta, STRETCH).item(), abs=4e-3)


def test_deterministic_gates_saturate_at_ln_11():
    edge = math.log(11)
    at = torch.tensor([-edge - 1e-9, -edge + 1e-3, 0.0, edge - 1e-3, edge + 1e-9], dtype=torch.float64)
    low, almost_low, half, almost_high, high = deterministic(at, STRETCH).tolist()
    assert (low, half, high) == (0.0, pytest.approx(0.5), 1.0)
    assert 0 < almost_low < 1e-3
    assert 1 - 1e-3 < almost_high < 1


def test_the_gradient_of_a_sample_is_that_of_the_formula():
    log_alpha = torch.linspace(-1, 1, 9, dtype=torch.float64, requires_grad=True)
    u = torch.full_like(log_alpha, 0.45).detach()
    assert torch.autograd.gradcheck(lambda a: sampled(a, u, 2 / 3, STRETCH), (log_alpha,))
