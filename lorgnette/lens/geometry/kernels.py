"""Sums over clouds of vectors on a GPU, in Triton: two readings of the vectors, and nothing that waits.

This module imports Triton: import it only where there is a GPU.
"""

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
    """‖x‖² of every vector, [batch token head]."""
    block, h, b = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    mask = (tokens < N)[:, None] & (dims < D)[None, :]
    x = tl.load(X + b * x_b + h * x_h + tokens[:, None].to(tl.int64) * x_n + dims[None, :], mask=mask, other=0.0)
    x = x.to(tl.float32)
    tl.store(OUT + (b * N + tokens) * H + h, tl.sum(x * x, 1), mask=tokens < N)


@triton.jit
@no_type_check
def _sums(X, x_b, x_n, x_h, WEIGHTS, MASK, OUT, B, N, D, H, DP: tl.constexpr, BT: tl.constexpr):
    """Of one text and head: Σ w x, Σ w' x, Σ x, Σ (w x)², Σ (w' x)², w of the head and w' of all heads."""
    h, b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    dims = tl.arange(0, DP)
    units, joint, total = tl.zeros([DP], tl.float32), tl.zeros([DP], tl.float32), tl.zeros([DP], tl.float32)
    squares, joint_squares = tl.zeros([DP], tl.float32), tl.zeros([DP], tl.float32)
    for start in range(0, N, BT):
        tokens = start + tl.arange(0, BT)
        real = tokens < N
        mask = real[:, None] & (dims < D)[None, :]
        x = tl.load(X + b * x_b + h * x_h + tokens[:, None].to(tl.int64) * x_n + dims[None, :], mask=mask, other=0.0)
        x = x.to(tl.float32)
        at = WEIGHTS + (b * N + tokens) * (H + 1)
        mine = x * tl.load(at + h, mask=real, other=0.0)[:, None]
        ours = x * tl.load(at + H, mask=real, other=0.0)[:, None]
        counts = tl.load(MASK + b * N + tokens, mask=real, other=0) != 0
        units += tl.sum(mine, 0)
        joint += tl.sum(ours, 0)
        total += tl.sum(tl.where(counts[:, None], x, 0.0), 0)
        squares += tl.sum(mine * mine, 0)
        joint_squares += tl.sum(ours * ours, 0)
    out, step = OUT + (b * H + h) * D + dims, B.to(tl.int64) * H * D
    tl.store(out, units, mask=dims < D)
    tl.store(out + step, joint, mask=dims < D)
    tl.store(out + 2 * step, total, mask=dims < D)
    tl.store(out + 3 * step, squares, mask=dims < D)
    tl.store(out + 4 * step, joint_squares, mask=dims < D)


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
    """As `cosine.directions`, in float32."""
    batch, tokens, heads, dim = vectors.shape
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    lengths = torch.empty(batch, tokens, heads, dtype=torch.float32, device=vectors.device)
    width = triton.next_power_of_2(max(dim, 16))
    block = 16 if INTERPRETED else max(1, min(64, 8192 // width))
    at = (vectors, vectors.stride(0), vectors.stride(1), vectors.stride(2))
    _lengths[triton.cdiv(tokens, block), heads, batch](*at, lengths, tokens, dim, heads, DP=width, BT=block)
    lengths = torch.cat([lengths, lengths.sum(-1, keepdim=True)], -1)
    here = mask[..., None] & (lengths > 0)
    weights = torch.where(here, lengths.rsqrt(), 0.0)
    out = torch.empty(5, batch, heads, dim, dtype=torch.float32, device=vectors.device)
    flags = mask.contiguous().view(torch.uint8)
    _sums[heads, batch](*at, weights, flags, out, batch, tokens, dim, heads, DP=width, BT=block)
    return Directions(
        units=out[0],
        units_all=out[1],
        total=out[2],
        squares=out[3].sum(0),
        squares_all=out[4].sum(0),
        energy=(lengths * here).sum(1),
        count=here.sum(1).to(torch.float32),
        zeros=(mask[..., None] & ~here).sum(1).to(torch.float32),
    )


def second_moment(
    vectors: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"], near: Float[Tensor, " dim"]
) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
    """As `isotropy.second_moment`, of the vectors that count: (h + l)(h + l)ᵀ ≈ h hᵀ + h lᵀ + l hᵀ.

    h and l are of bfloat16. What is left out, l lᵀ, is below 2⁻¹⁸ of the variance.
    """
    batch, tokens, dim = vectors.shape
    vectors = vectors if vectors.stride(-1) == 1 else vectors.contiguous()
    rows, shift = batch * tokens, near.to(torch.float32).contiguous()
    whole = triton.cdiv(rows, CHUNK) * CHUNK
    high, low = torch.empty(2, whole, dim, dtype=torch.bfloat16, device=vectors.device)
    high[rows:], low[rows:] = 0, 0
    block = 2 if INTERPRETED else 4
    _centred[triton.cdiv(rows, block),](
        vectors, vectors.stride(0), vectors.stride(1), mask.contiguous().view(torch.uint8), shift, high, low,
        tokens, rows, dim, EP=triton.next_power_of_2(dim), BT=block,
    )  # fmt: skip
    high, low = (part.view(-1, min(CHUNK, whole), dim) for part in (high, low))
    squares, cross = (_bmm(high.mT, other).sum(0, dtype=torch.float64) for other in (high, low))
    moment = squares + cross + cross.mT
    rest = high.sum((0, 1), dtype=torch.float64) + low.sum((0, 1), dtype=torch.float64)
    items, wide = mask.sum(), shift.double()
    half = wide * (items / 2) + rest
    return moment.addr_(wide, half).addr_(half, wide).tril_(), wide * items + rest


def _bmm(left: Tensor, right: Tensor) -> Tensor:
    if not left.is_cuda:  # the interpreter
        return left.float() @ right.float()
    return torch.bmm(left, right, out_dtype=torch.float32)


__all__ = ["directions", "second_moment"]
