"""How many directions a cloud of vectors uses: IsoScore, effective rank, explained variance, from second moments."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.statistics.entropy import entropy

STREAMS = 4
"""Streams of a GPU that find eigenvalues at the same time."""
SMALL = 128
CORES = min(16, os.cpu_count() or 1)
BLOCK = 96
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
    """The symmetric matrix of which this is the lower triangle."""
    below = lower.tril(-1)
    return below + below.transpose(-1, -2) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1))


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


def eigenvalues(matrices: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim"]:
    """Of symmetric matrices, ascending. On a GPU several at a time, as one does not fill it; small ones on the CPU."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    if not matrices.is_cuda or len(flat) < 2:
        return torch.linalg.eigvalsh(matrices)
    if flat.shape[-1] <= SMALL:
        parts = flat.cpu().numpy()
        with ThreadPoolExecutor(CORES) as pool:
            found = pool.map(np.linalg.eigvalsh, np.array_split(parts, min(CORES, len(parts))))
            return torch.from_numpy(np.concatenate(list(found))).to(matrices.device).view(matrices.shape[:-1])
    ready, out = torch.cuda.current_stream().record_event(), flat.new_empty(flat.shape[:-1])

    def some(which: slice) -> None:
        stream = torch.cuda.Stream(matrices.device)
        with torch.cuda.stream(stream):
            stream.wait_event(ready)
            out[which] = torch.linalg.eigvalsh(flat[which])
            stream.synchronize()

    with ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(some, (slice(start, None, STREAMS) for start in range(min(STREAMS, len(flat))))))
    return out.view(matrices.shape[:-1])


def effective_rank(moment: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch"]:
    """exp(−Σ p log p), p = σ/Σσ, σ the singular values of the matrix of vectors, uncentred (Roy & Vetterli 2007).

    The σ² are the eigenvalues of Σ x xᵀ. It is at most the number of vectors: compare like with like. NaN for nothing.
    """
    values = eigenvalues(moment)
    # What rounding leaves of a zero must not count: its root would be a thousand million times larger.
    floor = values[..., -1:] * (64 * moment.shape[-1] * torch.finfo(moment.dtype).eps)
    sigma = torch.where(values > floor, values, 0.0).clamp(min=0).sqrt()
    total = sigma.sum(-1, keepdim=True)
    share = sigma / torch.where(total > 0, total, 1.0)
    return torch.where(total[..., 0] > 0, entropy(share).exp(), torch.nan)


def effective_ranks(moments: Sequence[Float[Tensor, "_ _ _"]]) -> list[Float[Tensor, " _"]]:
    """`effective_rank` of many stacks of matrices; those of one shape together where that is faster."""
    out: list[Tensor | None] = [None] * len(moments)
    for shape in {moment.shape[1:] for moment in moments}:
        alike = [number for number, moment in enumerate(moments) if moment.shape[1:] == shape]
        ranks = effective_rank(torch.cat([moments[number] for number in alike]))
        for number, some in zip(alike, ranks.split([len(moments[number]) for number in alike]), strict=True):
            out[number] = some
    return [some for some in out if some is not None]


def first_component_share(vectors: Float[Tensor, "*batch item dim"]) -> Float[Tensor, "*batch"]:
    """σ₁² / Σ σ²: the share of the squared length that one direction holds, uncentred (MEV, Ethayarajh 2019)."""
    vectors = vectors.double()
    gram = vectors @ vectors.transpose(-1, -2)
    if vectors.shape[-1] < vectors.shape[-2]:
        gram = vectors.transpose(-1, -2) @ vectors
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    first = eigenvalues(gram)[..., -1]
    return torch.where(trace > 0, first / torch.where(trace > 0, trace, 1.0), torch.nan)
