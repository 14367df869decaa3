"""Our rules beside the explicit ones of lxt (Achtibat et al. 2024), where it is installed."""

import pytest
import torch

from lorgnette.explaining import relevance

lxt = pytest.importorskip("lxt.explicit.functional", reason="lxt is not installed: `pip install --no-deps lxt`")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def shares(rule, inputs, r):
    """lxt carries relevance itself where gradients are; we carry R / x."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(rule(*leaves), leaves, r)


def ours(rule, inputs, r):
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = rule(*leaves)
    found = torch.autograd.grad(y, leaves, r / y.detach())
    return [x.detach() * c for x, c in zip(leaves, found, strict=True)]


def same(one, other, tolerance=1e-5):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_linear():
    x, weight, bias, r = random(3, 5), random(4, 5), random(4), random(3, 4)
    theirs = shares(lambda x: lxt.linear_epsilon(x, weight, bias, 1e-12), [x], r)
    same(ours(lambda x: torch.nn.functional.linear(x, weight, bias), [x], r), theirs)


def test_products_of_matrices():
    a, b, r = random(2, 3, 4).softmax(-1), random(2, 4, 5), random(2, 3, 5)
    theirs = shares(lambda a, b: lxt.matmul(a, b, False, 1e-12), [a, b], r)
    same(ours(lambda a, b: relevance.scaled_gradient(a @ b, 0.5), [a, b], r), theirs)


def test_softmax():
    scores, r = random(3, 6), random(3, 6)
    same(ours(lambda s: s.softmax(-1), [scores], r), shares(lambda s: lxt.softmax(s, -1), [scores], r))


def test_products_and_sums():
    a, b, r = random(3, 5), random(3, 5), random(3, 5)
    same(ours(relevance.half_product, [a, b], r), shares(lxt.mul2, [a, b], r))
    same(ours(torch.add, [a, b], r), shares(lambda a, b: lxt.add2(a, b, False, 1e-12), [a, b], r))


def test_norms():
    x, gamma, beta, r = random(3, 6), random(6), random(6), random(3, 6)
    rate = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()

    def layer_norm(x):
        value = torch.nn.functional.layer_norm(x, (6,), gamma, beta, 1e-5)
        return relevance.constant_std(x, value, rate * gamma, True)

    same(ours(layer_norm, [x], r), shares(lambda x: lxt.layer_norm(x, gamma, beta, 1e-5), [x], r))
    root = (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma
    theirs = shares(lambda x: lxt.rms_norm_identity(x, gamma, 1e-5), [x], r)
    same(ours(lambda x: relevance.constant_std(x, x * root, root, False), [x], r), theirs)
