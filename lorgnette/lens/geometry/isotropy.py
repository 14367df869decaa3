"""How many directions a cloud of vectors uses: IsoScore, effective rank, explained variance, from second moments."""

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, islice

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.statistics.entropy import entropy

STREAMS = 4
"""Streams of a GPU that find eigenvalues at the same time."""
SMALL = 128
CORES = min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
MANY = 8
"""So many cores help a GPU with large matrices."""
LAST = 8
"""So many matrices are left to the GPU, so that it need not wait for a core with the last."""
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


def eigenvalues(stacks: Sequence[Float[Tensor, "*_ _ _"]]) -> list[Float[Tensor, "*_ _"]]:
    """Of symmetric matrices, ascending; of those on a GPU, on the CPU: found by its cores, or by both at once."""
    out, large = [torch.empty(0)] * len(stacks), []
    for number, stack in enumerate(stacks):
        if not stack.is_cuda or not len(stack):
            out[number] = torch.linalg.eigvalsh(stack).cpu()
        elif stack.shape[-1] <= SMALL:
            flat = stack.cpu().numpy().reshape(-1, *stack.shape[-2:])
            with ThreadPoolExecutor(CORES) as pool:
                found = [*pool.map(np.linalg.eigvalsh, np.array_split(flat, min(CORES, len(flat))))]
            out[number] = torch.from_numpy(np.concatenate(found)).view(stack.shape[:-1])
        else:
            large.append(number)
    single = [list(stacks[number].reshape(-1, *stacks[number].shape[-2:])) for number in large]
    cores = CORES - STREAMS if CORES >= MANY and find_spec("threadpoolctl") is not None else 0
    values = iter(eigenvalues_by_both(list(chain.from_iterable(single)), cores))
    for number, matrices in zip(large, single, strict=True):
        out[number] = torch.stack(list(islice(values, len(matrices)))).view(stacks[number].shape[:-1])
    return out


def eigenvalues_by_both(matrices: Sequence[Float[Tensor, "_ _"]], cores: int) -> list[Float[Tensor, " _"]]:
    """Large matrices, one after the other from one queue, by streams of their device and by so many CPU cores.

    One matrix does not fill a GPU, which finds its eigenvalues in a tenth of the time of a core.
    """
    if not matrices:
        return []
    waiting, out, device = deque(range(len(matrices))), [torch.empty(0)] * len(matrices), matrices[0].device
    if device.type == "cuda":
        torch.linalg.eigvalsh(matrices[0][:1, :1])  # torch loads its library with the first call: not in two threads
        torch.cuda.current_stream(device).synchronize()  # streams and threads of their own read them now

    def there() -> None:
        with torch.cuda.stream(torch.cuda.Stream(device) if device.type == "cuda" else None):
            while (number := _next(waiting, 0)) is not None:
                out[number] = torch.linalg.eigvalsh(matrices[number]).cpu()

    def here() -> None:
        while (number := _next(waiting, LAST)) is not None:
            out[number] = torch.from_numpy(np.linalg.eigvalsh(matrices[number].cpu().numpy()))

    with ThreadPoolExecutor(STREAMS + cores) as pool, _one_thread_each() if cores else nullcontext():
        for done in [pool.submit(work) for work in (*(there,) * STREAMS, *(here,) * cores)]:
            done.result()
    return out


def _next(waiting: deque[int], rest: int) -> int | None:
    """The next of a queue that several threads read, unless no more than the rest is left."""
    try:
        return waiting.popleft() if len(waiting) > rest else None
    except IndexError:  # another thread was faster
        return None


def _one_thread_each() -> AbstractContextManager[object]:
    """Linear algebra on one core for each call: else as many threads as there are cores help each of the cores."""
    return import_module("threadpoolctl").threadpool_limits(1, "blas")


def effective_rank(moment: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch"]:
    """exp(−Σ p log p), p = σ/Σσ, σ the singular values of the matrix of vectors, uncentred (Roy & Vetterli 2007).

    The σ² are the eigenvalues of Σ x xᵀ. It is at most the number of vectors: compare like with like. NaN for nothing.
    """
    return effective_ranks([moment])[0].to(moment.device)


def effective_ranks(moments: Sequence[Float[Tensor, "*_ _ _"]]) -> list[Float[Tensor, "*_"]]:
    """`effective_rank` of many stacks of matrices, found together."""
    return [_effective_rank(values) for values in eigenvalues(moments)]


def _effective_rank(values: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    # What rounding leaves of a zero must not count: its root would be a thousand million times larger.
    floor = values[..., -1:] * (64 * values.shape[-1] * torch.finfo(values.dtype).eps)
    sigma = torch.where(values > floor, values, 0.0).clamp(min=0).sqrt()
    total = sigma.sum(-1, keepdim=True)
    share = sigma / torch.where(total > 0, total, 1.0)
    return torch.where(total[..., 0] > 0, entropy(share).exp(), torch.nan)


def first_component_share(vectors: Float[Tensor, "*batch item dim"]) -> Float[Tensor, "*batch"]:
    """σ₁² / Σ σ²: the share of the squared length that one direction holds, uncentred (MEV, Ethayarajh 2019)."""
    vectors = vectors.double()
    gram = vectors @ vectors.transpose(-1, -2)
    if vectors.shape[-1] < vectors.shape[-2]:
        gram = vectors.transpose(-1, -2) @ vectors
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    first = eigenvalues([gram])[0][..., -1].to(trace.device)
    return torch.where(trace > 0, first / torch.where(trace > 0, trace, 1.0), torch.nan)
