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

from lorgnette.gpu.attention import INTERPRETED
from lorgnette.lens.geometry.cosine import Directions

CHUNK = 1024
"""Vectors whose products are summed in float32; over these sums in float64."""
TOGETHER = 3
"""Clouds of one shape that one launch takes: queries, keys and values of a call, or three hidden states."""
MOST = 2**28
"""The most bfloat16 numbers that the clouds of one launch are split into; a single cloud may exceed it."""


@triton.jit
@no_type_check
def _picked(k, X0, X1, X2):
    return tl.where(k == 0, X0, tl.where(k == 1, X1, X2))


@triton.jit
@no_type_check
def _lengths(X0, X1, X2, x_b, x_n, x_h, OUT, B, N, D, H, DP: tl.constexpr, BT: tl.constexpr):
    """‖x‖² of every vector, [cloud batch token head], and behind the heads that of all of them side by side."""
    block, b, k = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    mask = (tokens < N)[:, None] & (dims < D)[None, :]
    at = _picked(k, X0, X1, X2) + b * x_b + tokens[:, None].to(tl.int64) * x_n + dims[None, :]
    out = OUT + ((k * B + b) * N + tokens) * (H + 1)
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
    X0, X1, X2, x_b, x_n, x_h, LENGTHS, MASK, OUT, COUNTS, step, each, B, N, D, H,
    PARTS: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Of one text and some dimensions of a head: Σ w x, Σ w' x, Σ x, Σ (w x)², Σ (w' x)²; w = 1/‖x‖, w' of all.

    And of the head, and of all of them: how many vectors have a direction, how many have none, and Σ ‖x‖².
    """
    program, b, k = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    h, row = (program // PARTS).to(tl.int64), k * B + b
    at = _picked(k, X0, X1, X2) + b * x_b + h * x_h
    dims = (program % PARTS) * DP + tl.arange(0, DP)
    # Summed over the tokens at the end: a sum across threads for every block would take most of the time.
    units, joint, total = tl.zeros([BT, DP], tl.float32), tl.zeros([BT, DP], tl.float32), tl.zeros([BT, DP], tl.float32)
    squares, joint_squares = tl.zeros([BT, DP], tl.float32), tl.zeros([BT, DP], tl.float32)
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
        x = tl.load(at + tokens[:, None].to(tl.int64) * x_n + dims[None, :], mask=mask, other=0.0).to(tl.float32)
        lengths = LENGTHS + (row * N + tokens) * (H + 1)
        own, ours = tl.load(lengths + h, mask=real, other=0.0), tl.load(lengths + H, mask=real, other=0.0)
        counts = tl.load(MASK + b * N + tokens, mask=real, other=0) != 0
        has, have = counts & (own > 0), counts & (ours > 0)
        mine = x * tl.where(has, tl.rsqrt(tl.where(has, own, 1.0)), 0.0)[:, None]
        theirs = x * tl.where(have, tl.rsqrt(tl.where(have, ours, 1.0)), 0.0)[:, None]
        units += mine
        joint += theirs
        total += tl.where(counts[:, None], x, 0.0)
        squares += mine * mine
        joint_squares += theirs * theirs
        energy += tl.where(has, own, 0.0)
        count += has.to(tl.float32)
        zeros += (counts & (own <= 0)).to(tl.float32)
        energy_all += tl.where(have, ours, 0.0)
        count_all += have.to(tl.float32)
        zeros_all += (counts & (ours <= 0)).to(tl.float32)
    out, of = OUT + (row * H + h) * D + dims, COUNTS + row * (H + 1)
    tl.store(out, tl.sum(units, 0), mask=dims < D)
    tl.store(out + step, tl.sum(joint, 0), mask=dims < D)
    tl.store(out + 2 * step, tl.sum(total, 0), mask=dims < D)
    tl.store(out + 3 * step, tl.sum(squares, 0), mask=dims < D)
    tl.store(out + 4 * step, tl.sum(joint_squares, 0), mask=dims < D)
    if program % PARTS == 0:
        tl.store(of + h, tl.sum(count, 0))
        tl.store(of + each + h, tl.sum(zeros, 0))
        tl.store(of + 2 * each + h, tl.sum(energy, 0))
    if program == 0:
        tl.store(of + H, tl.sum(count_all, 0))
        tl.store(of + each + H, tl.sum(zeros_all, 0))
        tl.store(of + 2 * each + H, tl.sum(energy_all, 0))


@triton.jit
@no_type_check
def _centred(
    X0, X1, X2, x_b, x_n, MASK, NEAR, OUT, N, T, E,
    WIDE: tl.constexpr, CHUNK: tl.constexpr, EP: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """x − s as bfloat16 numbers h and l, zero where a vector does not count: chunks of h, h again, and 2 l.

    `WIDE`: of what is left of float32 too, r: chunks of 2 r, h, h, 2 l, and l / 2.
    """
    rows, dims, k = tl.program_id(0) * BT + tl.arange(0, BT), tl.arange(0, EP), tl.program_id(1)
    inside = (dims < E)[None, :]
    b, n = (rows // N).to(tl.int64), (rows % N).to(tl.int64)
    counts = tl.load(MASK + rows, mask=rows < T, other=0) != 0
    at = _picked(k, X0, X1, X2) + (b * x_b + n * x_n)[:, None] + dims[None, :]
    x = tl.load(at, mask=counts[:, None] & inside, other=0.0).to(tl.float32)
    x = tl.where(counts[:, None], x - tl.load(NEAR + k * E + dims, mask=dims < E, other=0.0)[None, :], 0.0)
    high = x.to(tl.bfloat16)
    chunk = (k * tl.num_programs(0) * BT + rows).to(tl.int64) // CHUNK
    out = OUT + (chunk * (5 if WIDE else 3) * CHUNK + rows % CHUNK)[:, None] * E + dims[None, :]
    low = (x - high.to(tl.float32)).to(tl.bfloat16)
    if WIDE:
        rest = x - high.to(tl.float32) - low.to(tl.float32)
        tl.store(out, (rest * 2).to(tl.bfloat16), mask=inside)
        tl.store(out + 4 * CHUNK * E, (low.to(tl.float32) * 0.5).to(tl.bfloat16), mask=inside)
        out += CHUNK * E
    tl.store(out, high, mask=inside)
    tl.store(out + CHUNK * E, high, mask=inside)
    tl.store(out + 2 * CHUNK * E, (low.to(tl.float32) * 2).to(tl.bfloat16), mask=inside)


@triton.jit
@no_type_check
def _added(X, OUT, chunks, size, BS: tl.constexpr):
    """Σ over the chunks of each cloud, in float64: torch would write them all as float64 first."""
    places, cloud = tl.program_id(0) * BS + tl.arange(0, BS), tl.program_id(1).to(tl.int64)
    at, out = X + cloud * chunks * size + places, tl.zeros([BS], tl.float64)
    for _ in tl.range(chunks, loop_unroll_factor=8):
        out += tl.load(at, mask=places < size, other=0.0).to(tl.float64)
        at += size
    tl.store(OUT + cloud * size + places, out, mask=places < size)


def supported(vectors: Float[Tensor, "batch token head dim"]) -> bool:
    """Whether these kernels take such vectors."""
    return vectors.is_cuda and vectors.dtype != torch.float64


def together(vectors: Float[Tensor, "batch token head dim"]) -> int:
    """How many clouds of this shape one launch handles."""
    return max(1, min(TOGETHER, MOST // max(1, 3 * vectors.numel())))


def _pointers(vectors: Sequence[Tensor]) -> tuple[list[Tensor], tuple[int, ...]]:
    """Up to three clouds as the kernels take them, and their strides, which must be the same."""
    if any(some.stride() != vectors[0].stride() or some.stride(-1) != 1 for some in vectors):
        vectors = [some.contiguous() for some in vectors]
    return [vectors[min(number, len(vectors) - 1)] for number in range(TOGETHER)], vectors[0].stride()[:-1]


def directions(
    vectors: Sequence[Float[Tensor, "batch token head dim"]], mask: Bool[Tensor, "batch token"]
) -> Directions:
    """As `cosine.directions` of each cloud, one behind the other, in float32; the squares are of each text."""
    (batch, tokens, heads, dim), clouds = vectors[0].shape, len(vectors)
    new = partial(torch.empty, dtype=torch.float32, device=vectors[0].device)
    lengths, out = new(clouds, batch, tokens, heads + 1), new(5, clouds * batch, heads, dim)
    counts = new(3, clouds * batch, heads + 1)
    width = triton.next_power_of_2(max(dim, 16))
    part = min(width, 32 if dim <= 64 else 64)
    parts = triton.cdiv(dim, part)
    pointers, strides = _pointers(vectors)
    block = 16 if INTERPRETED else max(1, min(64, 8192 // width))
    _lengths[triton.cdiv(tokens, block), batch, clouds](
        *pointers, *strides, lengths, batch, tokens, dim, heads, DP=width, BT=block
    )
    flags, block = mask.contiguous().view(torch.uint8), 16
    _sums[heads * parts, batch, clouds](
        *pointers, *strides, lengths, flags, out, counts, out.stride(0), counts.stride(0), batch, tokens, dim, heads,
        PARTS=parts, DP=part, BT=block, num_warps=2,
    )  # fmt: skip
    return Directions(out, counts)


@dataclass(frozen=True)
class Products:
    """Products of some vectors less a vector near their mean: what `second_moments` makes second moments from."""

    products: Float[Tensor, "cloud dim dim"]
    """h hᵀ + 2 h lᵀ, summed: its symmetric part is that of (h + l)(h + l)ᵀ less l lᵀ. Of float32 the rest too."""
    shift: Float[Tensor, "cloud dim"]
    total: Float[Tensor, "cloud dim"]
    items: Float[Tensor, ""]


def products(
    vectors: Sequence[Float[Tensor, "batch token _ _"]],
    mask: Bool[Tensor, "batch token"],
    texts: Float[Tensor, "cloud batch dim"],
    items: Float[Tensor, ""],
) -> Products:
    """Of the `items` vectors that count, whose sums over texts are known: (h + l)(h + l)ᵀ ≈ h hᵀ + h lᵀ + l hᵀ.

    h and l are of bfloat16. What is left out, l lᵀ, is below 2⁻¹⁸ of the variance. Of float32 there is a third term.
    """
    pointers, strides = _pointers([some.flatten(2) for some in vectors])
    (batch, tokens, dim), clouds = pointers[0].shape, len(vectors)
    total = texts.sum(1, dtype=torch.float64)
    shift = (total / items).float()
    chunks = triton.cdiv(batch * tokens, CHUNK)
    wide = pointers[0].dtype == torch.float32
    parts = torch.empty(clouds * chunks, 5 if wide else 3, CHUNK, dim, dtype=torch.bfloat16, device=shift.device)
    block = 16 if INTERPRETED else 4
    _centred[chunks * CHUNK // block, clouds](
        *pointers, *strides, mask.contiguous().view(torch.uint8), shift, parts, tokens, batch * tokens, dim,
        WIDE=wide, CHUNK=CHUNK, EP=triton.next_power_of_2(dim), BT=block,
    )  # fmt: skip
    # (h, h)ᵀ (h, 2 l): one product where h hᵀ and 2 h lᵀ would be two, and a sum.
    # Wide: (2 r, h, h, 2 l)ᵀ (h, h, 2 l, l / 2).
    both = _bmm(parts[:, :-1].flatten(1, 2).mT, parts[:, 1:].flatten(1, 2))
    out = torch.empty(clouds, dim, dim, dtype=torch.float64, device=shift.device)
    _added[triton.cdiv(dim * dim, 256), clouds](both, out, chunks, dim * dim, BS=256, num_warps=2)
    return Products(out, shift, total, items)


def second_moments(some: Sequence[Products]) -> tuple[Float[Tensor, "cloud dim dim"], Float[Tensor, "cloud dim"]]:
    """`isotropy.second_moment` of several clouds of one width."""
    both, total = torch.cat([one.products for one in some]), torch.cat([one.total for one in some])
    shift = torch.cat([one.shift for one in some]).double()
    items = torch.cat([one.items.double().expand(len(one.shift), 1) for one in some])
    # Σ x = n s + r, r = Σ (x − s): the same r that the moments are put back with, so that its rounding falls out.
    half = total - shift * (items / 2)
    moment = (both + both.mT).mul_(0.5)
    moment.baddbmm_(torch.stack([shift, half], -1), torch.stack([half, shift], -1).mT)
    return moment.tril_(), total


def _bmm(left: Tensor, right: Tensor) -> Tensor:
    if not left.is_cuda:  # the interpreter
        return left.float() @ right.float()
    return torch.bmm(left, right, out_dtype=torch.float32)


__all__ = ["Products", "directions", "products", "second_moments", "supported", "together"]
