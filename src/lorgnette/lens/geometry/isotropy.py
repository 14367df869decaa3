"""How many directions a cloud of vectors uses: IsoScore, effective rank, explained variance, from second moments."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.statistics.entropy import entropy

BLOCK = 128
"""Columns at a time when only the lower triangle of a product is wanted."""


def second_moment(
    vectors: Float[Tensor, "item dim"], near: Float[Tensor, " dim"] | None = None
) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
    """(Σ x xᵀ, Σ x) in float64; of the matrix only the lower triangle of blocks is made, see `mirrored`.

    Products are made in the vectors' own precision of x − s, s their mean or any vector `near` it, and s is put back in
    float64: else a large common mean, which is what anisotropy is, would drown the rest in rounding.
    """
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    items, dim = vectors.shape
    if near is None:
        near = vectors.mean(0) if items else vectors.new_zeros(dim)
    shift = near.to(vectors.dtype)
    centred = vectors - shift
    lower = torch.zeros(dim, dim, dtype=torch.float64, device=vectors.device)
    for start in range(0, dim, BLOCK):
        rows = slice(start, min(start + BLOCK, dim))
        lower[rows, : rows.stop] = (centred[:, rows].T @ centred[:, : rows.stop]).double()
    rest, shift = centred.sum(0).double(), shift.double()
    # Σ x xᵀ = Σ (x−s)(x−s)ᵀ + s rᵀ + r sᵀ + n s sᵀ, r = Σ (x−s), which is small.
    half = shift * (items / 2) + rest
    lower.addr_(shift, half).addr_(half, shift)
    return lower, shift * items + rest


def mirrored(lower: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim dim"]:
    """The symmetric matrix with this lower triangle."""
    return lower.tril() + lower.tril(-1).mT


def covariance(
    moment: Float[Tensor, "*batch dim dim"], total: Float[Tensor, "*batch dim"], count: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch dim dim"]:
    """Σ x xᵀ / n − x̄ x̄ᵀ."""
    n = count[..., None].clamp(min=1)
    mean = total / n
    return moment / n[..., None] - mean[..., :, None] * mean[..., None, :]


def iso_score(covariance: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch"]:
    """IsoScore: 1 if the variance is the same in all directions, 0 if all of it is in one (Rudman et al. 2022).

    The paper turns the cloud to its principal axes, scales the variances λ to √n λ/‖λ‖, takes their distance from 1 and
    maps it to [0, 1]. Put together this is (P − 1)/(n − 1) with the participation ratio P = (Σ λ)² / Σ λ²; and Σ λ is
    the trace of the covariance, Σ λ² its squared Frobenius norm, so that nothing need be turned. NaN where nothing
    varies, or in one dimension. It is of the *centred* cloud: a cloud far from the origin can be isotropic.
    """
    dim = covariance.shape[-1]
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    squared = covariance.square().sum((-2, -1))
    defined = (trace > 0) & (squared > 0) & (dim > 1)
    ratio = trace.square() / torch.where(defined, squared, 1.0)
    return torch.where(defined, (ratio - 1) / max(dim - 1, 1), torch.nan)


def eigenvalues(stacks: Sequence[Float[Tensor, "*_ _ _"]]) -> list[Float[Tensor, "*_ _"]]:
    """The eigenvalues of symmetric matrices, ascending; computed where the matrices are, returned on the CPU."""
    return [torch.linalg.eigvalsh(stack).cpu() for stack in stacks]


def effective_rank(moment: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch"]:
    """exp(−Σ p log p), p = σ/Σσ, σ the singular values of the matrix of vectors, uncentred (Roy & Vetterli 2007).

    The σ² are the eigenvalues of Σ x xᵀ. It is at most the number of vectors: compare like with like. NaN for nothing.
    """
    return effective_rank_of(eigenvalues([moment])[0]).to(moment.device)


def effective_rank_of(values: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """The effective rank from ascending eigenvalues, which are computed for many matrices together."""
    # What rounding leaves of a zero must not count: its root would be a thousand million times larger.
    floor = values[..., -1:] * (64 * values.shape[-1] * torch.finfo(values.dtype).eps)
    sigma = torch.where(values > floor, values, 0.0).clamp(min=0).sqrt()
    total = sigma.sum(-1, keepdim=True)
    share = sigma / torch.where(total > 0, total, 1.0)
    return torch.where(total[..., 0] > 0, entropy(share).exp(), torch.nan)


def gram(vectors: Float[Tensor, "*batch item dim"]) -> Float[Tensor, "*batch least least"]:
    """Products of the items or, if fewer, of the dimensions: both have the same eigenvalues, but for zeros."""
    vectors = vectors.double()
    return vectors.mT @ vectors if vectors.shape[-1] < vectors.shape[-2] else vectors @ vectors.mT


def first_component_share(values: Float[Tensor, "*batch least"]) -> Float[Tensor, "*batch"]:
    """σ₁² / Σ σ²: the share of the squared length that one direction holds, uncentred (MEV, Ethayarajh 2019).

    The σ² are the eigenvalues of `gram`, ascending.
    """
    total = values.sum(-1)
    return torch.where(total > 0, values[..., -1] / torch.where(total > 0, total, 1.0), torch.nan)
