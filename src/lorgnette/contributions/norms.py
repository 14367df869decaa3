"""How much of what is read arrives: norms of transformed vectors, exact, without the batch×head×query×key×model tensor.

With f^h(x) = (x W_V^h + b_V^h) W_O^h, a layer's attention gives Σ_h Σ_j α^h_ij f^h(x_j) + b_O. Its parts have the norms

    per head     ‖α^h_ij f^h(x_j)‖ = α^h_ij ‖f^h(x_j)‖
    all heads    ‖Σ_h α^h_ij f^h(x_j)‖² = α_ijᵀ G_j α_ij        G_j[h, g] = f^h(x_j) · f^g(x_j)

and G_j is cheap: f^h(x) · f^g(x) = v^h M_hg v^gᵀ with M_hg = W_O^h (W_O^g)ᵀ, which is known before any text.
Kobayashi et al. 2020, "Attention is not only a weight", EMNLP; Kobayashi et al. 2021, EMNLP.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.kernels import Room
from lorgnette.models.norms import variance

BLOCK = Room(2**18, 2**27)
"""Floats of projected vectors in one block, which fits the second-level cache of a CPU."""


def output_products(output: Float[Tensor, "head dim model"]) -> Float[Tensor, "head dim head_dim"]:
    """M_hg = W_O^h (W_O^g)ᵀ for all pairs of heads, those of g side by side."""
    flat = output.flatten(0, 1)
    return (flat @ flat.T).unflatten(0, output.shape[:2])


def gram(
    value: Float[Tensor, "batch head key dim"], products: Float[Tensor, "head dim head_dim"]
) -> Float[Tensor, "batch head head key"]:
    """G_j for every token j as coefficients of its quadratic form: lower triangle, what is below the diagonal doubled.

    So αᵀ G α = Σ_{g ≤ h} gram[h, g] α_h α_g; entries above the diagonal are zero.
    """
    batch, head, key, dim = value.shape
    tokens = value.transpose(1, 2).reshape(batch * key, head, dim)
    out = value.new_zeros(head, head, batch * key)
    step = BLOCK.on(value.device) // (head * dim) + 1
    for start in range(0, batch * key, step):
        part, place = tokens[start : start + step], slice(start, start + step)
        for h in range(head):
            projected = (part[:, h] @ products[h, :, : (h + 1) * dim]).unflatten(-1, (h + 1, dim))
            out[h, : h + 1, place] = projected.mul_(part[:, : h + 1]).sum(-1).T
    below = torch.ones(head, head, dtype=value.dtype, device=value.device).tril(-1)
    out.mul_(1 + below[..., None])
    return out.unflatten(-1, (batch, key)).permute(2, 0, 1, 3).contiguous()


def head_norms(
    value: Float[Tensor, "batch head key dim"], products: Float[Tensor, "head dim head_dim"]
) -> Float[Tensor, "batch head key"]:
    """‖f^h(x_j)‖ of each head, from the diagonal blocks M_hh alone."""
    head, dim = products.shape[:2]
    own = products.unflatten(-1, (head, dim)).diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [head dim dim]
    return ((value @ own) * value).sum(-1).clamp(min=0).sqrt()


def transformed_norms(gram: Float[Tensor, "batch head head key"]) -> Float[Tensor, "batch head key"]:
    """‖f^h(x_j)‖ of each head."""
    return gram.diagonal(dim1=1, dim2=2).transpose(1, 2).clamp(min=0).sqrt()


def summed_norms(gram: Float[Tensor, "batch head head key"]) -> Float[Tensor, "batch key"]:
    """‖Σ_h f^h(x_j)‖: the heads' transformed vectors added up with weight one each."""
    return gram.sum((1, 2)).clamp(min=0).sqrt()


def all_heads_norms(
    weights: Float[Tensor, "batch head query key"], gram: Float[Tensor, "batch head head key"]
) -> Float[Tensor, "batch query key"]:
    """‖Σ_h α^h_ij f^h(x_j)‖ of every pair: one plane of queries × keys after the other, no larger temporary."""
    planes = weights.unbind(1)  # sliced once: a slice costs as much as a product of small planes
    row, total = torch.empty_like(planes[0]), torch.zeros_like(planes[0])
    for h, coefficients in enumerate(gram[..., None, :].unbind(1)):
        first, *others = coefficients[:, : h + 1].unbind(1)
        torch.mul(planes[0], first, out=row)
        for plane, coefficient in zip(planes[1:], others, strict=False):
            row.addcmul_(plane, coefficient)
        total.addcmul_(row, planes[h])
    return total.clamp_(min=0).sqrt_()


@dataclass(frozen=True)
class FrozenNorm:
    """A LayerNorm with its statistics held fixed, which makes it linear: v ↦ γ ⊙ (v − mean(v)) / s.

    s is the standard deviation of the whole vector that the layer normalises, s² = Var + ε, so that the images of the
    parts (and of b_O), with β, add up to what the layer gives. Kobayashi et al. 2021, §3.
    """

    gamma: Float[Tensor, " model"] | None
    eps: float = 0.0
    unbiased: bool = False
    """Variance over model − 1, as in Fosse et al. 2023."""

    def deviation(self, whole: Float[Tensor, "*rest model"]) -> Float[Tensor, "*rest"]:
        """s of each vector that is normalised."""
        return (variance(whole, unbiased=self.unbiased) + self.eps).sqrt()

    def directed(self, part: Float[Tensor, "*rest model"]) -> Float[Tensor, "*rest model"]:
        """γ ⊙ (v − mean(v)): the image of a part but for the division by s."""
        centred = part - part.mean(-1, keepdim=True)
        return centred if self.gamma is None else centred.mul_(self.gamma)
