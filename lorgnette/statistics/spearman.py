"""Rank correlation."""

import torch
from jaxtyping import Float
from torch import Tensor


def ranks(values: Float[Tensor, " item"]) -> Float[Tensor, " item"]:
    """Ranks from 1; ties share the mean of theirs."""
    _, which, counts = torch.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts.double() - 1) / 2)[which]


def rounded(values: Float[Tensor, " item"], bits: int = 16) -> Float[Tensor, " item"]:
    """Keep this many bits of each number: what differs by rounding alone must tie, or noise would be ranked.

    [CLS] in the first layer is one vector in every text, but its norm comes out with another last bit in each batch.
    """
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2**bits).round(), exponent - bits)


def spearman(one: Float[Tensor, " item"], other: Float[Tensor, " item"]) -> float | None:
    """Spearman's ρ: Pearson's correlation of the ranks; None where one side is constant, so that it has no ranks."""
    if len(one) < 2:
        return None
    a, b = (r - r.mean() for r in (ranks(one), ranks(other)))
    spread = float(a.norm() * b.norm())
    return None if spread == 0 else max(-1.0, min(1.0, float(a @ b) / spread))
