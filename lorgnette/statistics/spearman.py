"""Rank correlation."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def rounded(values: Float[Tensor, " item"], bits: int = 16) -> Float[Tensor, " item"]:
    """Keep this many bits of each number: what differs by rounding alone must tie, or noise would be ranked.

    [CLS] in the first layer is one vector in every text, but its norm comes out with another last bit in each batch.
    """
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2**bits).round(), exponent - bits)


Values = Float[Tensor, " item"] | Float[np.ndarray, " item"]


def spearman(one: Values, other: Values) -> float | None:
    """Spearman's ρ: Pearson's correlation of the ranks; None where one side is constant, so that it has no ranks."""
    from scipy.stats import spearmanr

    a, b = np.asarray(one), np.asarray(other)
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        return None
    return float(spearmanr(a, b).statistic)
