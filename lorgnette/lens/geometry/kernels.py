"""Sums over clouds of vectors on a GPU, in Triton: two readings of the vectors, and nothing that waits.

This module imports Triton: import it only where there is a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending.kernels import INTERPRETED
from lorgnette.lens.geometry.cosine import Directions

CHUNK = 2048
"""Vectors whose products are summed in float32; over these sums in float64."""


@triton.jit
@no_type_check
def _lengths(X, x_b, x_n, x_h, OUT, N, D, H, DP: tl.constexpr, BT: tl.constexpr):
    """‖x‖² of every vector, [batch token head], and behind the heads that of all of them side by side."""
    block, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    mask = (tokens < N)[:, None] & (dims < D)[None, :]
    at, out = X + b * x_b + tokens[:, None].to(tl.int64) * x_n + dims[None, :], OUT + (b * N + tokens) * (H + 1)
    together = tl.zeros([BT], tl.float32)
    for h in range(H):
        x = tl.load(at + h * x_h, mask=mask, other=0.0).to(tl.float32)
        length = tl.sum(x * x, 1)
        together += length
        tl.store(out + h, length, mask=tokens < N)
    tl.store(out + H, together, mask=tokens < N)


@triton.jit
@no_type_check
def _sums(
    X, x_b, x_n, x_h, LENGTHS, MASK, OUT, COUNTS, step, each, N, D, H,
    PARTS: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Of one text and some dimensions of a head: Σ w x, Σ w' x, Σ x, Σ (w x)², Σ (w' x)²; w = 1/‖x‖, w' of all.

    And of the head, and of all of them: Σ ‖x‖², how many vectors have a direction, and how many have none.
    """
    program, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    h = (program // PARTS).to(tl.int64)
    dims = (program % PARTS) * DP + tl.arange(0, DP)
    units, joint, total = tl.zeros([DP], tl.float32), tl.zeros([DP], tl.float32), tl.zeros([DP], tl.float32)
    squares, joint_squares = tl.zeros([DP], tl.float32), tl.zeros([DP], tl.float32)
    energy, count, zeros = tl.zeros([BT], tl.float32), tl.zeros([BT], tl.float32), tl.zeros([BT], tl.float32)
    energy_all, count_all, zeros_all = (
        tl.zeros([BT], tl.float32),
        tl.zeros([BT], tl.float32),
        tl.zeros([BT], tl.float32),
    )
    for start in range(0, N, BT):
        tokens = start + tl.arange(0, BT)
        real = tokens < N
        mask = real[:, None] & (dims < D)[None, :]
        x = tl.load(X + b * x_b + h * x_h + tokens[:, None].to(tl.int64) * x_n + dims[None, :], mask=mask, other=0.0)
        x = x.to(tl.float32)
        at = LENGTHS + (b * N + tokens) * (H + 1)
        own, ours = tl.load(at + h, mask=real, other=0.0), tl.load(at + H, mask=real, other=0.0)
        counts = tl.load(MASK + b * N + tokens, mask=real, other=0) != 0
        has, have = counts & (own > 0), counts & (ours > 0)
        mine = x * tl.where(has, tl.rsqrt(tl.where(has, own, 1.0)), 0.0)[:, None]
        theirs = x * tl.where(have, tl.rsqrt(tl.where(have, ours, 1.0)), 0.0)[:, None]
        units += tl.sum(mine, 0)
        joint += tl.sum(theirs, 0)
        total += tl.sum(tl.where(counts[:, None], x, 0.0), 0)
        squares += tl.sum(mine * mine, 0)
        joint_squares += tl.sum(theirs * theirs, 0)
        energy += tl.where(has, own, 0.0)
        count += has.to(tl.float32)
        zeros += (counts & (own <= 0)).to(tl.float32)
        energy_all += tl.where(have, ours, 0.0)
        count_all += have.to(tl.float32)
        zeros_all += (counts & (ours <= 0)).to(tl.float32)
    out, of = OUT + (b * H + h) * D + dims, COUNTS + b * (H + 1)
    tl.store(out, units, mask=dims < D)
    tl.store(out + step, joint, mask=dims < D)
    tl.store(out + 2 * step, total, mask=dims < D)
    tl.store(out + 3 * step, squares, mask=dims < D)
    tl.store(out + 4 * step, joint_squares, mask=dims < D)
    if program % PARTS == 0:
        tl.store(of + h, tl.sum(energy, 0))
        tl.store(of + each + h, tl.sum(count, 0))
        tl.store(of + 2 * each + h, tl.sum(zeros, 0))
    if program == 0:
        tl.store(of + H, tl.sum(energy_all, 0))
        tl.store(of + each + H, tl.sum(count_all, 0))
        tl.store(of + 2 * each + H, tl.sum(zeros_all, 0))


@triton.jit
@no_type_check
def _centred(X, x_b, x_n, MASK, NEAR, HIGH, LOW, N, T, E, EP: tl.constexpr, BT: tl.constexpr):
    """x − s as two bfloat16 numbers, zero where a vector does not count."""
    rows, dims = tl.program_id(0) * BT + tl.arange(0, BT), tl.arange(0, EP)
    mask = (rows < T)[:, None] & (dims < E)[None, :]
    b, n = (rows // N).to(tl.int64), (rows % N).to(tl.int64)
    x = tl.load(X + (b * x_b + n * x_n)[:, None] + dims[None, :], mask=mask, other=0.0).to(tl.float32)
    x -= tl.load(NEAR + dims, mask=dims < E, other=0.0)[None, :]
    counts = tl.load(MASK + rows, mask=rows < T, other=0) != 0
    x = tl.where(counts[:, None] & mask, x, 0.0)
    high = x.to(tl.bfloat16)
    at = rows[:, None].to(tl.int64) * E + dims[None, :]
    tl.store(HIGH + at, high, mask=mask)
    tl.store(LOW + at, (x - high.to(tl.float32)).to(tl.bfloat16), mask=mask)


def directions(vectors: Float[Tensor, "batch token head dim"], mask: Bool[Tensor, "batch token"]) -> Directions:
    """As `cosine.directions`, in float32; the squares are of each text, and to be summed."""
    batch, tokens, heads, dim = vectors.shape
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    new = partial(torch.empty, dtype=torch.float32, device=vectors.device)
    lengths, out, counts = new(batch, tokens, heads + 1), new(5, batch, heads, dim), new(3, batch, heads + 1)
    width = triton.next_power_of_2(max(dim, 16))
    part = min(width, 128)
    parts = triton.cdiv(dim, part)
    at = (vectors, vectors.stride(0), vectors.stride(1), vectors.stride(2))
    block = 16 if INTERPRETED else max(1, min(64, 8192 // width))
    _lengths[triton.cdiv(tokens, block), batch](*at, lengths, tokens, dim, heads, DP=width, BT=block)
    flags, block = mask.contiguous().view(torch.uint8), 16 if INTERPRETED else 64
    _sums[heads * parts, batch](
        *at,
        lengths,
        flags,
        out,
        counts,
        out.stride(0),
        counts.stride(0),
        tokens,
        dim,
        heads,
        PARTS=parts,
        DP=part,
        BT=block,
    )
    return Directions(*out, *counts)


@dataclass(frozen=True)
class Products:
    """Products of some vectors less a vector near their mean: what `second_moments` makes second moments from."""

    products: Float[Tensor, "dim dim"]
    """h hᵀ + 2 h lᵀ, summed: its symmetric part is that of (h + l)(h + l)ᵀ less l lᵀ."""
    shift: Float[Tensor, " dim"]
    total: Float[Tensor, " dim"]
    items: Float[Tensor, ""]


def products(
    vectors: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"], texts: Float[Tensor, "batch dim"],
    items: Float[Tensor, ""],
) -> Products:  # fmt: skip
    """Of the `items` vectors that count, whose sums over texts are known: (h + l)(h + l)ᵀ ≈ h hᵀ + h lᵀ + l hᵀ.

    h and l are of bfloat16. What is left out, l lᵀ, is below 2⁻¹⁸ of the variance.
    """
    batch, tokens, dim = vectors.shape
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    total = texts.sum(0, dtype=torch.float64)
    rows, shift = batch * tokens, (total / items).float()
    whole = triton.cdiv(rows, CHUNK) * CHUNK
    high, low = torch.empty(2, whole, dim, dtype=torch.bfloat16, device=vectors.device)
    if whole > rows:
        high[rows:], low[rows:] = 0, 0
    block = 2 if INTERPRETED else 4
    _centred[triton.cdiv(rows, block),](
        vectors, vectors.stride(0), vectors.stride(1), mask.contiguous().view(torch.uint8), shift, high, low,
        tokens, rows, dim, EP=triton.next_power_of_2(dim), BT=block,
    )  # fmt: skip
    high, low = (part.view(-1, min(CHUNK, whole), dim) for part in (high, low))
    both = _bmm(high.mT, high).add_(_bmm(high.mT, low), alpha=2).sum(0, dtype=torch.float64)
    return Products(both, shift, total, items)


def second_moments(some: Sequence[Products]) -> tuple[Float[Tensor, "cloud dim dim"], Float[Tensor, "cloud dim"]]:
    """As `isotropy.second_moment`, of several clouds of one width."""
    both, total = torch.stack([one.products for one in some]), torch.stack([one.total for one in some])
    shift = torch.stack([one.shift for one in some]).double()
    items = torch.stack([one.items for one in some]).double()[:, None]
    # Σ x = n s + r, r = Σ (x − s): the same r that the moments are put back with, so that its rounding falls out.
    half = total - shift * (items / 2)
    moment = (both + both.mT).mul_(0.5)
    moment.baddbmm_(torch.stack([shift, half], -1), torch.stack([half, shift], -1).mT)
    return moment.tril_(), total


def _bmm(left: Tensor, right: Tensor) -> Tensor:
    if not left.is_cuda:  # the interpreter
        return left.float() @ right.float()
    return torch.bmm(left, right, out_dtype=torch.float32)


__all__ = ["Products", "directions", "products", "second_moments"]
