"""Rank correlation."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def rounded(values: Float[Tensor, "*item"], bits: int = 16) -> Float[Tensor, "*item"]:
    """Round to this many bits: numbers that differ by rounding alone must tie, or the ranks would be noise.

    [CLS] in the first layer is one vector in every text, but its norm comes out with another last bit in each batch.
    """
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2**bits).round(), exponent - bits)


def ranks(values: Float[Tensor, "*row item"], count: Int[Tensor, "*row"]) -> Float[Tensor, "*row item"]:
    """From 1; items that are equal share the mean of their ranks. Of a row the first `count` items are ranked.

    The others are given the mean of all ranks, so that they have no part in a covariance.
    """
    count, places = count[..., None], torch.arange(values.shape[-1], device=values.device)
    there = places < count
    ordered, order = _sorted(values.where(there, torch.inf))
    differs = torch.ones_like(there)
    differs[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    below = places.where(differs, 0).cummax(-1).values
    differs = differs.roll(-1, -1)  # now from the next one
    up_to = (places + 1).where(differs, len(places)).flip(-1).cummin(-1).values.flip(-1).minimum(count)
    twice = torch.empty_like(order).scatter_(-1, order, below + up_to + 1)
    return twice.where(there, count + 1).double() / 2


def _sorted(values: Float[Tensor, "*row item"]) -> tuple[Float[Tensor, "*row item"], Int[Tensor, "*row item"]]:
    """In order, and their places; NumPy sorts several times as fast as torch on a CPU."""
    if not values.is_cpu:
        ordered, order = values.sort(-1)
        return ordered, order
    order = torch.from_numpy(np.argsort(values.numpy(), -1))
    return values.gather(-1, order), order


def spearman_by_row(
    one: Float[Tensor, "*row item"], other: Float[Tensor, "*row item"], count: Int[Tensor, "*row"]
) -> Float[Tensor, "*row"]:
    """`spearman` of the first `count` items of every row; NaN where one side is constant."""
    a, b = ranks(torch.stack([one, other]), count.expand(2, *count.shape)) - (count[..., None] + 1).double() / 2
    size = (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return torch.where(size > 0, (a * b).sum(-1) / torch.where(size > 0, size, 1.0), torch.nan).clamp(-1, 1)


Values = Float[Tensor, " item"] | Float[np.ndarray, " item"]


def spearman(one: Values, other: Values) -> float | None:
    """Spearman's ρ: Pearson's correlation of the ranks; None where one side is constant, so that it has no ranks."""
    from scipy.stats import spearmanr

    a, b = np.asarray(one), np.asarray(other)
    if len(a) < 2 or (a == a[0]).all() or (b == b[0]).all():
        return None
    return float(spearmanr(a, b).statistic)
