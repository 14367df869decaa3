"""Spectra and norms of products of low-rank maps, without forming the large matrices.

A head's two circuits are maps of the residual stream of rank at most dim: W_QK = W_Q W_Kᵀ (what attends to what) and
W_OV = W_V W_O (what is written where it attends). With W = L R, L [model dim] and R [dim model]:

    singular values   those of R_L R_Rᵀ, from L = Q_L R_L and Rᵀ = Q_R R_R
    eigenvalues       those of R L, and zeros
    ‖L R L' R'‖²      tr((LᵀL) M (R'R'ᵀ) Mᵀ)         M = R L'

Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def singular_values(
    left: Float[Tensor, "*head model dim"], right: Float[Tensor, "*head dim model"]
) -> Float[Tensor, "*head rank"]:
    """The singular values of left · right, the largest first; at most as many as either width."""
    _, upper = torch.linalg.qr(left)
    _, lower = torch.linalg.qr(right.mT)
    return torch.linalg.svdvals(upper @ lower.mT)


def eigenvalues(
    left: Float[Tensor, "*head model dim"], right: Float[Tensor, "*head dim model"]
) -> Complex[Tensor, "*head dim"]:
    """The eigenvalues of left · right that can differ from zero."""
    return torch.linalg.eigvals(right @ left)


def effective_rank(values: Float[Tensor, "*head rank"]) -> Float[Tensor, "*head"]:
    """exp of the entropy of σ / Σσ: how many directions carry the map (Roy & Vetterli 2007)."""
    shares = values / values.sum(-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return torch.special.entr(shares).sum(-1).exp()


def positive_share(values: Complex[Tensor, "*head dim"]) -> Float[Tensor, "*head"]:
    """Σ Re λ / Σ |λ|, in [−1, 1]: near 1 a map that keeps directions (copies), near −1 one that reverses them."""
    size = values.abs().sum(-1)
    return values.real.sum(-1) / size.clamp(min=torch.finfo(size.dtype).tiny)


def composition(
    first: tuple[Float[Tensor, "a model dim"], Float[Tensor, "a dim model"]],
    second: tuple[Float[Tensor, "b model dim2"], Float[Tensor, "b dim2 model"]],
) -> Float[Tensor, "a b"]:
    """‖A B‖_F / (‖A‖_F ‖B‖_F) of every pair of maps A = L R and B = L' R'."""
    (left, right), (left2, right2) = first, second
    middle = torch.einsum("arm,bms->abrs", right, left2)
    before, behind = left.mT @ left, right2 @ right2.mT
    square = ((before[:, None] @ middle) * (middle @ behind[None])).sum((-1, -2))
    norms = _norm(left, right)[:, None] * _norm(left2, right2)[None]
    return square.clamp(min=0).sqrt() / norms.clamp(min=torch.finfo(square.dtype).tiny)


def _norm(left: Float[Tensor, "a model dim"], right: Float[Tensor, "a dim model"]) -> Float[Tensor, " a"]:
    return ((left.mT @ left) * (right @ right.mT)).sum((-1, -2)).clamp(min=0).sqrt()
