"""The hard concrete distribution against METHODS' Monte-Carlo figures and a loop in float64."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq

from lorgnette.attending import Site
from lorgnette.training.gates.gates import HeadGates
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


def stretched(u, log_alpha, beta):
    """s̄(u) of Louizos et al. 2018, eq. 10–11, before it is cut off at 0 and 1; it grows with u."""
    return 1.2 / (1 + math.exp(-(math.log(u / (1 - u)) + log_alpha) / beta)) - 0.1


def crossing(log_alpha, beta, level):
    """The u at which s̄ reaches a level."""
    return brentq(lambda u: stretched(u, log_alpha, beta) - level, 1e-15, 1 - 1e-15, xtol=1e-15)


@pytest.mark.parametrize("beta", [0.33, 2 / 3])
@pytest.mark.parametrize("log_alpha", [-3.0, -0.7, 0.0, 1.3, 2.5])
def test_probabilities_and_the_mean_by_integration(beta, log_alpha):
    """P(z ≠ 0) and P(z = 1) are lengths of intervals of u, E[z] an integral: no closed form, no random number."""
    first, last = (crossing(log_alpha, beta, level) for level in (0.0, 1.0))
    at = torch.tensor(log_alpha, dtype=torch.float64)
    assert probability_open(at, beta, STRETCH).item() == pytest.approx(1 - first, abs=1e-12)
    assert probability_one(at, beta, STRETCH).item() == pytest.approx(1 - last, abs=1e-12)
    mean = quad(lambda u: stretched(u, log_alpha, beta), first, last, epsabs=1e-12)[0] + 1 - last
    u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    assert sampled(torch.full_like(u, log_alpha), u, beta, STRETCH).mean().item() == pytest.approx(mean, abs=1e-5)
    whole = 1.2 / (1 + math.exp(-log_alpha)) - 0.1  # eq. 13: at test time, without β and u
    assert deterministic(at, STRETCH).item() == pytest.approx(min(1.0, max(0.0, whole)), abs=1e-14)


@pytest.mark.parametrize(("over", "sites"), [("sum", 1), ("mean", 2)])
def test_the_penalty_is_the_expected_number_of_open_gates(over, sites):
    gates = HeadGates({Site("encoder", "self", 0): (0, 1, 2), Site("encoder", "self", 1): (0, 1)}, over=over)
    values = [-2.0, -0.3, 0.4, 1.7, 3.1]
    gates.log_alpha = torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))
    expected = sum(1 - crossing(value, 0.33, 0.0) for value in values)
    assert gates.value.item() == pytest.approx(expected / sites, abs=1e-12)
    slope = (crossing(0.4 - 1e-5, 0.33, 0.0) - crossing(0.4 + 1e-5, 0.33, 0.0)) / 2e-5
    gates.value.backward()
    assert gates.log_alpha.grad[2].item() == pytest.approx(slope / sites, abs=1e-8)
