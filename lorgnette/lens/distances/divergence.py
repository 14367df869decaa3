"""How far apart two heads look: the Jensen–Shannon divergence of their rows."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.statistics.entropy import entropy


def smoothed(
    weights: Float[Tensor, "head query key"], visible: Bool[Tensor, "heads query key"], share: float
) -> Float[Tensor, "head query key"]:
    """(1 − share) α + share / n over the n keys that a row may see; the others stay at zero."""
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    return (1 - share) * weights + share * even.to(weights.dtype)


def pairwise_jensen_shannon(rows: Float[Tensor, "head query key"]) -> Float[Tensor, "head head query"]:
    """JS of every two heads, for each query; the entropies of the heads themselves are computed once.

    Memory is three blocks of the size of `rows`: hand over as many queries as fit into the cache.
    """
    heads, queries, _ = rows.shape
    own = entropy(rows) / 2
    # Halved once, and never zero: what is left for each pair is a sum, a logarithm, a product and a sum.
    halves = rows.clamp(min=2 * torch.finfo(rows.dtype).tiny) / 2
    middle, logs = torch.empty_like(halves), torch.empty_like(halves)
    out = rows.new_zeros(heads, heads, queries)
    for a in range(heads - 1):
        mixed, log = middle[a + 1 :], logs[a + 1 :]
        torch.add(halves[a + 1 :], halves[a], out=mixed)
        out[a, a + 1 :] = _sum_x_log_x(mixed, log).neg_().sub_(own[a + 1 :]).sub_(own[a]).clamp_(min=0)
    return out + out.transpose(0, 1)


def _sum_x_log_x(
    x: Float[Tensor, "head query key"], buffer: Float[Tensor, "head query key"]
) -> Float[Tensor, "head query"]:
    """Σ x log x over the keys; on a CPU by NumPy, whose log2 takes a quarter of the time of torch's."""
    if x.device.type != "cpu" or x.dtype == torch.bfloat16:  # which NumPy does not have
        return torch.log(x, out=buffer).mul_(x).sum(-1)
    np.log2(x.numpy(), out=buffer.numpy())
    return buffer.mul_(x).sum(-1).mul_(math.log(2))
