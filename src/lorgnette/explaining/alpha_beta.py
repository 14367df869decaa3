"""The αβ-rule with α = β = ½, both parts positive, as the code released with Voita et al. 2021 has it.

Of output j, whose parts z_ij come from inputs i, half of the relevance is shared out over the positive parts and half
over the negative ones, and all shares are ≥ 0:

    R_i = Σ_j (½ z⁺_ij / (Σ z⁺_·j + ε) + ½ z⁻_ij / (Σ z⁻_·j + ε)) R_j

then R is rescaled so that Σ|R| is what it was. With A_j = Σ_i |z_ij| + 2ε, y_j = Σ_i z_ij and D_j = R_j / (A_j² − y_j²)
this is R_i = Σ_j |z_ij| A_j D_j − Σ_j z_ij y_j D_j: three products instead of six.

A bias b_j is split evenly over the N inputs. The released code adds b_j / N to each part before it looks at signs; here
the split bias keeps its own sign, which differs only for parts smaller than |b_j| / N and needs no out×in tensor for
every token. Relevance is carried as c = R / x (see `maths.relevance`).
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.explaining.relevance import stabilised

EPS = 1e-5


def _shared(
    relevance: Float[Tensor, "*any out"], size: Float[Tensor, "*any out"], value: Float[Tensor, "*any out"]
) -> tuple[Float[Tensor, "*any out"], Float[Tensor, "*any out"]]:
    """2 A ⊙ D and 2 y ⊙ D from Σ|z| and y = Σz; `_rescaled` takes the 2 out again.

    They are sum and difference of R / (A − y) and R / (A + y). ε comes last, so that a large sum cannot swallow it.
    """
    positive = (size + value).clamp_(min=0).add_(2 * EPS)
    negative = (size - value).clamp_(min=0).add_(2 * EPS)
    torch.div(relevance, positive, out=positive)
    torch.div(relevance, negative, out=negative)
    return negative + positive, negative.sub_(positive)


def _rescaled(c: Tensor, x: Tensor, relevance: Tensor, axes: tuple[int, ...] = (-1,)) -> Tensor:
    """c times what makes Σ|c x| equal to Σ|R| over these axes; c itself is changed."""
    before, now = (size.sum(axes, keepdim=True) for size in (relevance.abs(), (c * x).abs_()))
    return c.mul_(before / now.clamp(min=torch.finfo(c.dtype).tiny))


def _relevant_tokens(gradient: Float[Tensor, "*any out"]) -> Any:
    """Tokens with any relevance: in the last layer often a single one, and never padding."""
    tokens = (gradient != 0).any(-1)
    return ... if bool(tokens.all()) else tokens


def _put(like: Tensor, tokens: Any, c: Tensor) -> Tensor:
    """c of these tokens, and zero for all others."""
    if tokens is ...:
        return c
    out = torch.zeros_like(like)
    out[tokens] = c
    return out


def _evenly(x: Tensor, bias: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
    """c of the bias's relevance, split evenly over the inputs."""
    share = (plus @ bias.abs() - minus @ bias)[..., None] / x.shape[-1]
    return share / stabilised(x, 1e-12)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, value, weight, bias)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, value, weight, bias = ctx.saved_tensors
        tokens = _relevant_tokens(gradients[0])
        x, relevance = x[tokens], gradients[0][tokens] * value[tokens]
        absolute = weight.abs()
        size = x.abs() @ absolute
        if bias is not None:
            size += bias.abs()
        plus, minus = _shared(relevance, size, value[tokens])
        c = (plus @ absolute.T).mul_(x.sign()).sub_(minus @ weight.T)
        if bias is not None:
            c += _evenly(x, bias, plus, minus)
        return _put(ctx.saved_tensors[0], tokens, _rescaled(c, x, relevance)), None, None, None


def linear(
    x: Float[Tensor, "*any in"],
    value: Float[Tensor, "*any out"],
    weight: Float[Tensor, "in out"],
    bias: Float[Tensor, " out"] | None,
) -> Float[Tensor, "*any out"]:
    """x W + b; Σ|R| is kept for every token."""
    return _Linear.apply(x, value.detach(), weight.detach(), None if bias is None else bias.detach())


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a + b

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        y = a + b
        relevance = gradients[0] * y
        plus, minus = _shared(relevance, a.abs() + b.abs(), y)
        to_a, to_b = a.sign() * plus - minus, b.sign() * plus - minus
        both = _rescaled(torch.cat([to_a, to_b], -1), torch.cat([a, b], -1), relevance)
        return both.chunk(2, -1)  # type: ignore[return-value]


def summed(a: Float[Tensor, "*any model"], b: Float[Tensor, "*any model"]) -> Float[Tensor, "*any model"]:
    """a + b, as where a residual comes in; Σ|R| is kept for every token."""
    return _Sum.apply(a, b)


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, weights: Tensor, context: Tensor) -> Tensor:
        ctx.save_for_backward(value, weights, context)
        return context

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        value, weights, context = ctx.saved_tensors
        relevance = gradients[0] * context
        plus, minus = _shared(relevance, weights @ value.abs(), context)
        back = weights.transpose(-1, -2)
        c = value.sign() * (back @ plus) - back @ minus
        return _rescaled(c, value, relevance, (1, 2, 3)), None, None


def context_by_rule(
    value: Float[Tensor, "batch head key dim"],
    weights: Float[Tensor, "batch head query key"],
    context: Float[Tensor, "batch head query dim"],
) -> Float[Tensor, "batch head query dim"]:
    """Σ_j α_ij v_j with the weights held constant (`consider_attn_constant`); Σ|R| is kept for every text."""
    return _Mix.apply(value, weights.detach(), context.detach())


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, value: Tensor, gain: Tensor, normed: Tensor, bias: Tensor | None, centred: bool
    ) -> Tensor:
        ctx.save_for_backward(x, value, gain, normed, bias)
        ctx.centred = centred
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        saved = ctx.saved_tensors
        tokens = _relevant_tokens(gradients[0])
        x, y, gain, normed = (t.expand(saved[0].shape)[tokens] for t in saved[:4])
        bias = saved[4]
        relevance = gradients[0][tokens] * y
        parts = _NormParts(x, gain, normed, float(ctx.centred))
        size, value = parts.sizes(), parts.sums()
        if bias is not None:
            size, value = size + bias.abs(), value + bias
        plus, minus = _shared(relevance, size, value)
        c = parts.back_sizes(plus) - parts.back(minus)
        if bias is not None:
            c = c + _evenly(x, bias, plus, minus)
        return _put(saved[0], tokens, _rescaled(c, x, relevance)), None, None, None, None, None


def _order(x: Float[Tensor, "*any model"]) -> Int[Tensor, "*any model"]:
    """The order that sorts each row; on a CPU by NumPy, three times as fast as torch."""
    numpy = x.device.type == "cpu" and x.dtype != torch.bfloat16  # which it does not have
    return torch.from_numpy(np.argsort(x.detach().numpy(), -1)) if numpy else x.argsort(-1)


class _NormParts:
    """z_ij = g_j (δ_ij x_i − x_i (m + x̂_i x̂_j) / N): the norm's Jacobian times its input, m = 1 with a mean, 0 without.

    Nothing here is N×N: Σ_i w_i |m + x̂_i t| is linear in t between the points where a term changes its sign, so with
    the x̂_i sorted it needs prefix sums only.
    """

    def __init__(self, x: Tensor, gain: Tensor, normed: Tensor, mean: float) -> None:
        self.x, self.gain, self.normed, self.mean = x, gain, normed, mean
        self.count = x.shape[-1]
        own = (mean + normed.square()) / self.count
        self.correction = (1 - own).abs() - own  # the diagonal: |δ − own| in the place of |own|
        if mean:
            self.order = _order(normed)
            self.sorted = normed.gather(-1, self.order)
            # Of terms 1 + x̂_i t those are negative whose x̂_i lies below −1/t (t > 0), or above it (t < 0). Looked up
            # for t in order, which takes half the time: neighbours take the same way.
            self.rank = torch.searchsorted(self.sorted, -1 / stabilised(self.sorted, 1e-30))

    def sizes(self) -> Tensor:
        """Σ_i |z_ij| for every output j."""
        size = self.x.abs()
        return self.gain.abs() * (self._absolute(size) / self.count + size * self.correction)

    def sums(self) -> Tensor:
        """Σ_i z_ij."""
        mean = self.mean * self.x.mean(-1, keepdim=True)
        slope = (self.normed * self.x).mean(-1, keepdim=True)
        return self.gain * (self.x - mean - self.normed * slope)

    def back_sizes(self, h: Tensor) -> Tensor:
        """Σ_j |z_ij| h_j / x_i."""
        h = self.gain.abs() * h
        return self.x.sign() * (self._absolute(h) / self.count + h * self.correction)

    def back(self, h: Tensor) -> Tensor:
        """Σ_j z_ij h_j / x_i."""
        h = self.gain * h
        return h - self.mean * h.mean(-1, keepdim=True) - self.normed * (self.normed * h).mean(-1, keepdim=True)

    def _absolute(self, w: Tensor) -> Tensor:
        """Σ_i w_i |m + x̂_i t| for every t = x̂_k."""
        if not self.mean:
            return (w * self.normed.abs()).sum(-1, keepdim=True) * self.normed.abs()
        ordered = w.gather(-1, self.order)
        zero = torch.zeros_like(w[..., :1])
        below = torch.cat([zero, ordered.cumsum(-1)], -1)
        below_moment = torch.cat([zero, (ordered * self.sorted).cumsum(-1)], -1)
        all_, moment = below[..., -1:], below_moment[..., -1:]
        low = below.gather(-1, self.rank) + self.sorted * below_moment.gather(-1, self.rank)
        whole = all_ + self.sorted * moment
        negative = torch.where(self.sorted > 0, low, whole - low)
        return torch.empty_like(w).scatter_(-1, self.order, whole - 2 * negative)


def norm(
    x: Float[Tensor, "*any model"],
    value: Float[Tensor, "*any model"],
    gain: Float[Tensor, "*any #model"],
    normed: Float[Tensor, "*any model"],
    bias: Float[Tensor, " model"] | None,
    *,
    centred: bool,
) -> Float[Tensor, "*any model"]:
    """A norm by its first-order expansion at x: parts are the Jacobian times x; `gain` is γ / s, `normed` x̂.

    The parts of a LayerNorm add up to next to nothing (ε/(Var + ε) of its output), so that what each input gets has
    little to do with what it gave. Σ|R| is kept for every token.
    """
    bias = None if bias is None else bias.detach()
    return _Norm.apply(x, value.detach(), gain.detach(), normed.detach(), bias, centred)
