"""How far apart two heads look: the Jensen–Shannon divergence of their rows."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor


def smoothed(
    weights: Float[Tensor, "head query key"], visible: Bool[Tensor, "heads query key"], share: float
) -> Float[Tensor, "head query key"]:
    """(1 − share) α + share / n over the n keys that a row may see; the others stay at zero."""
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    return torch.add(share * even.to(weights.dtype), weights, alpha=1 - share)


def summed_jensen_shannon(rows: Float[Tensor, "head query key"]) -> Float64[Tensor, "head head"]:
    """JS of every two heads, summed over the queries: H(m) − H(a)/2 − H(b)/2, m the mean of both rows.

    Memory is three blocks of the size of `rows`: hand over as many queries as fit into the cache.
    """
    # Halved once, and never zero: what is left for each pair is a sum, a logarithm and a product.
    halves = rows.clamp(min=2 * torch.finfo(rows.dtype).tiny).div_(2).flatten(1)
    between = -math.log(2) * _sums(halves).double().triu_()
    own = between.diagonal() / 2  # a head with itself: so two equal heads are exactly 0 apart
    apart = (between - own[:, None] - own).clamp_(min=0).triu_(1)
    return apart + apart.T


def _sums(halves: Float[Tensor, "head weight"]) -> Float[Tensor, "head head"]:
    """Σ m log₂ m over all weights, m the mean of those of heads a and b ≥ a; the other half stays empty."""
    heads = len(halves)
    means, logs = torch.empty_like(halves), torch.empty_like(halves)
    out = halves.new_empty(heads, heads)
    if not halves.is_cpu or halves.dtype == torch.bfloat16:  # which NumPy does not have
        for a in range(heads):
            mean = torch.add(halves[a:], halves[a], out=means[a:])
            out[a, a:] = torch.log2(mean, out=logs[a:]).mul_(mean).sum(-1)
        return out
    # NumPy's log2 takes a quarter of the time of torch's, and it multiplies and sums in one pass.
    half, middle, log, sums = (each.numpy() for each in (halves, means, logs, out))
    for a in range(heads):
        np.add(half[a:], half[a], out=middle[a:])
        np.log2(middle[a:], out=log[a:])
        np.vecdot(middle[a:], log[a:], out=sums[a, a:])
    return out
