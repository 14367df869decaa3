"""How far apart two heads look: the Jensen–Shannon divergence of their rows."""

from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.statistics.entropy import entropy


def smoothed(
    weights: Float[Tensor, "head query key"], visible: Bool[Tensor, "heads query key"], share: float
) -> Float[Tensor, "head query key"]:
    """(1 − share) α + share / n over the n keys that a row may see; the others stay at zero."""
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    return (1 - share) * weights + share * even.to(weights.dtype)


def jensen_shannon(p: Float[Tensor, "*rest key"], q: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest"]:
    """JS(p, q) = H((p + q)/2) − (H(p) + H(q))/2 in nats: 0 for the same distribution, ln 2 for disjoint ones.

    Lin 1991, "Divergence measures based on the Shannon entropy". Rounding below zero is clamped.
    """
    return (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2).clamp(min=0)


def pairwise_jensen_shannon(rows: Float[Tensor, "head query key"]) -> Float[Tensor, "head head query"]:
    """JS of every two heads, for each query; the entropies of the heads themselves are computed once.

    Memory is two blocks of the size of `rows`: hand over as many queries as fit.
    """
    heads, queries, _ = rows.shape
    own = entropy(rows)
    out = rows.new_zeros(heads, heads, queries)
    for a in range(heads - 1):
        rest = slice(a + 1, heads)
        middle = entropy((rows[rest] + rows[a]) / 2)
        out[a, rest] = (middle - (own[rest] + own[a]) / 2).clamp(min=0)
        out[rest, a] = out[a, rest]
    return out
