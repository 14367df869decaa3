"""How far apart two heads look: the Jensen–Shannon divergence of their rows."""

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
        torch.log(mixed, out=log)
        out[a, a + 1 :] = (-log.mul_(mixed).sum(-1)).sub_(own[a + 1 :]).sub_(own[a]).clamp_(min=0)
    return out + out.transpose(0, 1)
