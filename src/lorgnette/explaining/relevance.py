"""Rules of layer-wise relevance propagation, as gradients.

Relevance R is carried as c = R / x, so that a rule is a gradient that is not the true one and R = x ⊙ c everywhere:
sums, permutations and products with constants need no rule at all. Every function here gives the value that it is
given, to the last bit, and changes only what goes backwards. What a linear map does under the ε-rule with ε → 0, its
bias taking its own share, is its true gradient.

Ali et al. 2022, "XAI for Transformers: Better Explanations through Conservative Propagation", ICML (`constant_std`,
weights held fixed). Achtibat et al. 2024, "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for
Transformers", ICML (`half_product`, ½ and ¼ in attention). Voita et al. 2019, "Analyzing Multi-Head Self-Attention",
ACL, App. A (`without_bias`, `product_by_size`, `weighted_by_size`).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

TINY = 1e-3
"""Added, with the sign of what it is added to, to denominators of ratio rules that may vanish."""


class _Factor(torch.autograd.Function):
    """A given value whose gradient with respect to x is that of a product with `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, factor: Tensor | float) -> Tensor:
        ctx.factor = factor
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.factor, None, None


class _Centred(torch.autograd.Function):
    """A given value whose gradient with respect to x is that of (x − mean(x)) ⊙ gain."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, gain: Tensor) -> Tensor:
        ctx.gain = gain
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        directed = gradients[0] * ctx.gain
        return directed - directed.mean(-1, keepdim=True), None, None


class _Product(torch.autograd.Function):
    """a ⊙ b with given gradients for both factors."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, to_a: Tensor, to_b: Tensor) -> Tensor:
        ctx.save_for_backward(to_a, to_b)
        return a * b

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_a, to_b = ctx.saved_tensors
        return gradients[0] * to_a, gradients[0] * to_b, None, None


BLOCK = 2**19
"""Floats that a block of products of weights and values may have."""


_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def signed(size: float, like: Float[Tensor, "*any"], out: Float[Tensor, "*any"] | None = None) -> Float[Tensor, "*any"]:
    """`size` with the sign of each number, where zero has a sign too.

    By the bits of the numbers: two passes that take less time than torch's `copysign` on a CPU.
    """
    integer = _INTEGERS[like.dtype]
    bits, room = int(torch.tensor(size, dtype=like.dtype).view(integer)), None if out is None else out.view(integer)
    signs = torch.bitwise_and(like.view(integer), torch.iinfo(integer).min, out=room)
    return signs.bitwise_or_(bits).view(like.dtype)


def stabilised(denominator: Float[Tensor, "*any"], tiny: float = TINY) -> Float[Tensor, "*any"]:
    """d + tiny · sign(d), where zero has a sign too: never zero, and never of another sign."""
    return signed(tiny, denominator).add_(denominator)


def scaled_gradient(x: Float[Tensor, "*any"], factor: float) -> Float[Tensor, "*any"]:
    """x with only this share of its relevance passed on."""
    return _Factor.apply(x, x.detach(), factor)


def passed(x: Float[Tensor, "*any"], value: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """f(x) of a point-wise non-linearity, all of whose relevance goes to x: c_x = c_f · f(x) / x, and 0 where x = 0.

    Plain gradient × input gives x f′(x) / f(x) of it: 0 where tanh is flat.
    """
    ratio = (value.detach() / x.detach()).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return _Factor.apply(x, value.detach(), ratio)


def constant_std(
    x: Float[Tensor, "*any model"],
    value: Float[Tensor, "*any model"],
    gain: Float[Tensor, "*any #model"],
    centred: bool,
) -> Float[Tensor, "*any model"]:
    """The value of a norm γ ⊙ (x − mean) / s (+ β) for which s is a constant: `gain` is γ / s; RMSNorm is not centred.

    The LN-rule of Ali et al. 2022 and the identity through 1/s of Achtibat et al. 2024. With the true gradient
    ΣR(x) = ε/(Var + ε) ΣR(y): all relevance is lost.
    """
    return (_Centred if centred else _Factor).apply(x, value.detach(), gain.detach())


def half_product(a: Float[Tensor, "*any"], b: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """a ⊙ b, half of whose relevance goes to each (Achtibat et al. 2024, Prop. 3.3)."""
    return _Product.apply(a, b, b.detach() / 2, a.detach() / 2)


def product_by_size(a: Float[Tensor, "*any"], b: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """a ⊙ b, whose relevance is shared out as a / (a + b) and b / (a + b) (Voita et al. 2019, App. A).

    a + b may vanish while a b does not: shares are then large and of opposite sign. Stabilised by TINY.
    """
    share = (a.detach() * b.detach()) / stabilised(a.detach() + b.detach())
    return _Product.apply(a, b, share, share)


def without_bias(value: Float[Tensor, "*any"], bias: Float[Tensor, " out"]) -> Float[Tensor, "*any"]:
    """W x + b, of whose relevance the bias takes nothing: W_uv u / Σ_u′ W_u′v u′ (Voita et al. 2019, App. A)."""
    whole = value.detach()
    return _Factor.apply(value, whole, whole / stabilised(whole - bias.detach()))


class _WeightedBySize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, weights: Tensor, context: Tensor) -> Tensor:
        ctx.save_for_backward(value, weights)
        return context

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Σ_i g_id α_ij v_jd / (α_ij + v_jd), a few keys at a time, in two buffers."""
        value, weights = (tensor.flatten(0, 1) for tensor in ctx.saved_tensors)
        gradient = gradients[0].flatten(0, 1)
        relevant = (gradient != 0).any(-1).any(0)  # in the last layer often one query, and never padding
        if not relevant.all():
            gradient, weights = gradient[:, relevant], weights[:, relevant]
        out = torch.empty_like(value)
        rows, dim = gradient.shape[1:]
        step = max(1, BLOCK // max(1, rows * dim))
        # New ones in each turn would be given back to the system. Weights of a model in half precision are float32.
        buffers = weights.new_empty(2, rows * step * dim)
        for one in range(len(value)):
            g, columns = gradient[one, :, None], weights[one][..., None]
            for keys in (slice(at, at + step) for at in range(0, value.shape[1], step)):
                v, some = value[one, keys], columns[:, keys]
                whole, small = (buffer[: rows * len(v) * dim].view(rows, len(v), dim) for buffer in buffers)
                torch.add(some, v, out=whole)
                whole += signed(TINY, whole, out=small)
                out[one, keys] = torch.div(some, whole, out=whole).mul_(g).sum(0).mul_(v)
        return out.view_as(ctx.saved_tensors[0]), None, None


def weighted_by_size(
    value: Float[Tensor, "batch head key dim"],
    weights: Float[Tensor, "batch head query key"],
    context: Float[Tensor, "batch head query dim"],
) -> Float[Tensor, "batch head query dim"]:
    """Σ_j α_ij v_j, in which every product α_ij v_jd gives v_jd the share v / (α + v) (Voita et al. 2019, App. A).

    The share of the weights, α / (α + v), ends there: the paper does not say how relevance goes through a softmax.
    """
    return _WeightedBySize.apply(value, weights.detach(), context.detach())
