"""Σ m log₂ m of the mean row of every two heads on a GPU, in Triton: a logarithm for each pair and each weight.

This module imports Triton: `lorgnette.kernels` imports it where there is a GPU.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float64
from torch import Tensor

EACH = 8192
"""Weights whose terms are summed in float32; over these sums in float64."""


@triton.jit
@no_type_check
def _sums(X, OUT, H, E, EACH: tl.constexpr, BH: tl.constexpr, BE: tl.constexpr):
    """The sums for two tiles of heads over some weights; tiles below the diagonal stay empty."""
    first, second, part = tl.program_id(0) * BH, tl.program_id(1) * BH, tl.program_id(2).to(tl.int64)
    if second >= first:
        a, b = first + tl.arange(0, BH)[:, None, None], second + tl.arange(0, BH)[None, :, None]
        total = tl.zeros([BH, BH, BE], tl.float32)
        for start in range(0, EACH, BE):
            weight = part * EACH + start + tl.arange(0, BE)[None, None, :]
            # Missing weights count as one half, so that the sum of two has the logarithm zero.
            of_a = tl.load(X + a.to(tl.int64) * E + weight, mask=(a < H) & (weight < E), other=0.5)
            of_b = tl.load(X + b.to(tl.int64) * E + weight, mask=(b < H) & (weight < E), other=0.5)
            mean = of_a + of_b
            total += mean * tl.log2(mean)
        rows, columns = first + tl.arange(0, BH)[:, None], second + tl.arange(0, BH)[None, :]
        out = OUT + (part * H + rows) * H + columns
        tl.store(out, tl.sum(total, 2), mask=(rows < H) & (columns < H))


def sums(halves: Float[Tensor, "head weight"]) -> Float64[Tensor, "head head"]:
    """The sums for all pairs of heads, from their halved rows; the half below the diagonal is zero."""
    heads, weights = halves.shape
    parts, side = triton.cdiv(weights, EACH), 8
    tiles = triton.cdiv(heads, side)
    out = torch.zeros(parts, heads, heads, dtype=torch.float32, device=halves.device)
    _sums[tiles, tiles, parts](halves.float().contiguous(), out, heads, weights, EACH=EACH, BH=side, BE=64)
    return out.sum(0, dtype=torch.float64).triu_()


__all__ = ["sums"]
