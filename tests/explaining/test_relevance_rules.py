"""Every rule against a slow replica in float64, written as shares of relevance rather than as a gradient."""

import pytest
import torch
from torch import nn

from lorgnette.explaining import alpha_beta, relevance
from lorgnette.explaining.relevance import TINY, signed, stabilised

EPS = alpha_beta.EPS


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def back(rule, x, relevance_out):
    """R of every input, given R of the output: inputs and output are turned into c = R / x and back."""
    inputs = [t.clone().requires_grad_() for t in (x if isinstance(x, tuple) else (x,))]
    y = rule(*inputs)
    found = torch.autograd.grad(y, inputs, relevance_out / y.detach())
    shares = [t.detach() * c for t, c in zip(inputs, found, strict=True)]
    return shares if isinstance(x, tuple) else shares[0]


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_values_are_those_given_to_the_last_bit():
    x, y = random(5, 8), random(5, 8)
    gain = random(5, 8)
    for out in (relevance.passed(x, y), relevance.constant_std(x, y, gain, True), relevance.without_bias(y, y[0])):
        assert torch.equal(out, y)
    assert torch.equal(relevance.half_product(x, y), x * y)
    assert torch.equal(relevance.product_by_size(x, y), x * y)
    assert torch.equal(alpha_beta.summed(x, y), x + y)


@pytest.mark.parametrize("function", [torch.tanh, nn.functional.gelu, nn.functional.silu])
def test_a_point_wise_function_passes_everything_on(function):
    x, r = random(4, 6), random(4, 6)
    torch.testing.assert_close(back(lambda x: relevance.passed(x, function(x)), x, r), r)
    flat = torch.full((1,), 20.0, dtype=torch.float64, requires_grad=True)
    relevance.passed(flat, flat.tanh()).backward()
    assert flat.grad.item() == pytest.approx(1 / 20)
    zero = torch.zeros(3, requires_grad=True)
    relevance.passed(zero, zero.tanh()).sum().backward()
    assert torch.equal(zero.grad, torch.zeros(3))


def test_the_linear_rule_is_the_gradient():
    x, weight, r = random(3, 5), random(4, 5), random(3, 4)
    z = x @ weight.T
    expected = torch.zeros_like(x)
    for t in range(3):
        for i in range(5):
            expected[t, i] = sum(x[t, i] * weight[j, i] / z[t, j] * r[t, j] for j in range(4))
    torch.testing.assert_close(back(lambda x: x @ weight.T, x, r), expected)


def test_a_norm_with_constant_deviation_shares_by_what_is_centred():
    """R_i = Σ_j x_i C_ij / (Σ_i' x_i' C_i'j) R_j, C = I − 11ᵀ/N, whatever s and γ are (Ali et al. 2022)."""
    x, r, gamma = random(3, 6), random(3, 6), random(6)
    centring = torch.eye(6, dtype=torch.float64) - 1 / 6
    rate = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()

    def rule(x):
        return relevance.constant_std(x, (x - x.mean(-1, keepdim=True)) * rate * gamma, rate * gamma, True)

    expected = torch.stack([(x[t, :, None] * centring / (x[t] @ centring)) @ r[t] for t in range(3)])
    torch.testing.assert_close(back(rule, x, r), expected)
    torch.testing.assert_close(back(rule, x, r).sum(-1), r.sum(-1))
    root = rate * gamma
    torch.testing.assert_close(back(lambda x: relevance.constant_std(x, x * root, root, False), x, r), r)


def test_the_true_gradient_of_a_norm_loses_all():
    """ΣR(x) = ε / (Var + ε) ΣR(y)."""
    x, r, eps = random(3, 6), random(3, 6), 0.1
    found = back(lambda x: nn.functional.layer_norm(x, (6,), eps=eps), x, r)
    share = eps / (x.var(-1, unbiased=False) + eps)
    torch.testing.assert_close(found.sum(-1), share * r.sum(-1))


def test_products():
    a, b, r = random(4, 6), random(4, 6), random(4, 6)
    for found in back(relevance.half_product, (a, b), r):
        torch.testing.assert_close(found, r / 2)
    whole = relevance.stabilised(a + b)
    for found, part in zip(back(relevance.product_by_size, (a, b), r), (a, b), strict=True):
        torch.testing.assert_close(found, part / whole * r)


def test_a_bias_that_takes_nothing():
    x, weight, bias, r = random(3, 5), random(4, 5), random(4), random(3, 4)
    found = back(lambda x: relevance.without_bias(x @ weight.T + bias, bias), x, r)
    parts = x[:, None] * weight
    expected = (parts / relevance.stabilised(parts.sum(-1, keepdim=True)) * r[..., None]).sum(1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("irrelevant", [[], [1], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("block", [1, 30, relevance.BLOCK])
def test_weights_and_values_share_by_size(block, irrelevant, monkeypatch):
    """Every product α v of a head's output gets its part, of which v takes v / (α + v)."""
    monkeypatch.setattr(relevance, "BLOCK", block)
    weights, value, r = random(1, 2, 3, 4).softmax(-1), random(1, 2, 4, 5), random(1, 2, 3, 5)
    r[:, :, irrelevant] = 0.0
    expected = torch.zeros_like(value)
    context = weights @ value
    for h, i, j, d in torch.cartesian_prod(*(torch.arange(n) for n in (2, 3, 4, 5))).tolist():
        a, v = weights[0, h, i, j], value[0, h, j, d]
        part = a * v / context[0, h, i, d] * r[0, h, i, d]
        expected[0, h, j, d] += part * v / relevance.stabilised(a + v)
    found = back(lambda v: relevance.weighted_by_size(v, weights, weights @ v), value, r)
    torch.testing.assert_close(found, expected)


def test_values_of_half_precision_are_shared_by_size_in_that_of_the_weights():
    weights, value, g = random(1, 2, 3, 4).softmax(-1).float(), random(1, 2, 4, 5).bfloat16(), random(1, 2, 3, 5)

    def shared(value):
        value = value.clone().requires_grad_()
        context = relevance.weighted_by_size(value, weights, (weights @ value.float()).to(value.dtype))
        return torch.autograd.grad(context, value, g.bfloat16().to(value.dtype))[0]

    assert torch.equal(shared(value), shared(value.float()).bfloat16())


def by_signs(parts, r):
    """The αβ-rule from all parts z [out, in] of one output vector; then Σ|R| as before."""
    plus, minus = parts.clamp(min=0), (-parts).clamp(min=0)
    shares = 0.5 * plus / (plus.sum(-1, keepdim=True) + EPS) + 0.5 * minus / (minus.sum(-1, keepdim=True) + EPS)
    found = shares.T @ r
    return found * r.abs().sum() / found.abs().sum()


def test_linear_by_signs():
    x, weight, r = random(3, 5), random(5, 4), random(3, 4)
    found = back(lambda x: alpha_beta.linear(x, x @ weight, weight, None), x, r)
    expected = torch.stack([by_signs((x[t, :, None] * weight).T, r[t]) for t in range(3)])
    torch.testing.assert_close(found, expected)


def test_a_bias_is_split_evenly():
    """The released code lets b/N join every part: a difference for the few parts that are smaller than that."""
    x, weight, r = random(3, 64), random(64, 4), random(3, 4).abs()
    bias = random(4) * 0.1
    found = back(lambda x: alpha_beta.linear(x, x @ weight + bias, weight, bias), x, r)
    own_sign, joined = [], []
    for t in range(3):
        parts = (x[t, :, None] * weight).T
        split = (bias / 64)[:, None].expand(4, 64)
        whole = by_signs(torch.cat([parts, split], -1), r[t])
        own_sign.append(whole[:64] + whole[64:])
        joined.append(by_signs(parts + split, r[t]))
    torch.testing.assert_close(found, torch.stack(own_sign))
    assert (found - torch.stack(joined)).abs().sum() < 0.01 * found.abs().sum()


def test_sums_by_signs():
    a, b, r = random(3, 6), random(3, 6), random(3, 6)
    found = back(alpha_beta.summed, (a, b), r)
    for t in range(3):
        parts = torch.cat([torch.diag(a[t]), torch.diag(b[t])], -1)
        torch.testing.assert_close(torch.cat([found[0][t], found[1][t]]), by_signs(parts, r[t]))


def test_attention_by_signs():
    weights, value, r = random(1, 2, 3, 4).softmax(-1), random(1, 2, 4, 5), random(1, 2, 3, 5)
    found = back(lambda v: alpha_beta.context_by_rule(v, weights, weights @ v), value, r)
    parts = torch.zeros(2 * 3 * 5, 2 * 4 * 5, dtype=torch.float64)
    for h, i, j, d in torch.cartesian_prod(*(torch.arange(n) for n in (2, 3, 4, 5))).tolist():
        parts[(h * 3 + i) * 5 + d, (h * 4 + j) * 5 + d] = weights[0, h, i, j] * value[0, h, j, d]
    torch.testing.assert_close(found.flatten(), by_signs(parts, r.flatten()))


@pytest.mark.parametrize("centred", [True, False])
def test_a_norm_by_its_jacobian_and_signs(centred):
    x, r, gamma = random(4, 7) * 2, random(4, 7), random(7)

    def whole(x):
        x = x - x.mean(-1, keepdim=True) if centred else x
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma

    rate = ((x - x.mean(-1, keepdim=True) if centred else x).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    normed = (x - x.mean(-1, keepdim=True) if centred else x) * rate
    found = back(lambda x: alpha_beta.norm(x, whole(x), rate * gamma, normed, None, centred=centred), x, r)
    jacobians = [torch.autograd.functional.jacobian(whole, x[t]) for t in range(4)]
    expected = torch.stack([by_signs(jacobians[t] * x[t], r[t]) for t in range(4)])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_a_denominator_never_vanishes_or_changes_its_sign():
    d = torch.tensor([0.0, 1e-9, -1e-9, 2.0])
    found = relevance.stabilised(d)
    assert (found != 0).all()
    assert ((d < 0) == (found < 0)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_small_number_takes_the_sign_of_every_number(dtype):
    numbers = torch.tensor([[3.0, -2.0, 0.0, -0.0], [torch.inf, -torch.inf, 1e-7, -1e-7]], dtype=dtype)
    exact = torch.copysign(torch.tensor(TINY, dtype=dtype), numbers)
    for some in (numbers, numbers.T):
        assert torch.equal(signed(TINY, some), exact if some is numbers else exact.T)
    room = torch.empty_like(numbers)
    assert signed(TINY, numbers, out=room).data_ptr() == room.data_ptr()
    assert torch.equal(room, exact)
    assert torch.equal(stabilised(numbers), numbers + exact)
