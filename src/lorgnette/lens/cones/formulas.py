"""Whether every class has a direction of its own: cosines to representatives and class means, and how they separate."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Separation:
    """AUROC of own against other, its standard error (DeLong), and how many there are of each; NaN if none.

    `terms` are what each text adds to the error: their squares sum to its square, and their products with those of
    another class to the covariance of both areas.
    """

    value: float
    error: float
    own: int
    other: int
    terms: Float[Tensor, " text"]


def separation(cosines: Float[Tensor, "text draw"], own: Bool[Tensor, " text"]) -> Separation:
    """P(cosine of a text of the class > cosine of another): the area under the ROC curve, ties counting half.

    NaN in `cosines` means that a text does not count in that draw. Areas are averaged over draws; the standard error is
    that of DeLong et al. 1988, over texts, with each text's part averaged over draws.
    """
    parts = torch.full(cosines.shape, torch.nan, dtype=torch.float64)
    for draw in range(cosines.shape[1]):
        column = cosines[:, draw]
        here = ~column.isnan()
        one, other = here & own, here & ~own
        if one.any() and other.any():
            parts[one, draw] = _below(column[other], column[one])
            parts[other, draw] = 1 - _below(column[one], column[other])
    each, terms = parts.nanmean(1), torch.zeros(len(cosines), dtype=torch.float64)
    sides = [side & ~each.isnan() for side in (own, ~own)]
    first, second = (int(side.sum()) for side in sides)
    if not first or not second:
        return Separation(float("nan"), float("nan"), 0, 0, terms)
    if first < 2 or second < 2:
        return Separation(float(parts[own].nanmean()), float("nan"), first, second, terms)
    for side, n in zip(sides, (first, second), strict=True):
        terms[side] = (each[side] - each[side].mean()) / (n * (n - 1)) ** 0.5
    return Separation(float(parts[own].nanmean()), float(terms.norm()), first, second, terms)


def _below(values: Float[Tensor, " value"], at: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
    """Share of the values below each point; those equal to it count half."""
    ordered = values.sort().values
    left, right = torch.searchsorted(ordered, at), torch.searchsorted(ordered, at, right=True)
    return (left + right).double() / (2 * len(values))


def representative_cosines(
    units: Float[Tensor, "text dim"], chosen: Int[Tensor, " draw"], *, keep: bool
) -> Float[Tensor, "text draw"]:
    """cos(x, r) for every text and representative; NaN for a representative with itself, unless it is to be kept."""
    cosines = (units @ units[chosen].T).clamp(-1, 1)
    if not keep:
        cosines[chosen, torch.arange(len(chosen))] = torch.nan
    # Equal vectors must tie, so rounding must not tell them apart.
    return cosines.round(decimals=12)


def mean_direction_cosines(
    units: Float[Tensor, "text dim"], labels: Int[Tensor, " text"], classes: int, *, keep: bool
) -> Float[Tensor, "text class"]:
    """cos(x, Σ û of class c); of its own class a text is taken out first, unless it is to be kept. NaN for nothing."""
    sums = torch.zeros(classes, units.shape[1], dtype=units.dtype).index_add_(0, labels, units)
    dots, lengths = units @ sums.T, sums.norm(dim=-1).expand(len(units), -1).clone()
    if not keep:
        own = sums[labels] - units
        rows = torch.arange(len(units))
        alone = torch.bincount(labels, minlength=classes)[labels] < 2
        dots[rows, labels] = torch.where(alone, torch.nan, (units * own).sum(-1))
        lengths[rows, labels] = own.norm(dim=-1)
    cosines = torch.where(lengths > 0, dots / torch.where(lengths > 0, lengths, 1.0), torch.nan)
    return cosines.clamp(-1, 1).round(decimals=12)


def class_cosines(
    units: Float[Tensor, "text dim"], labels: Int[Tensor, " text"], classes: int, *, centred: bool
) -> Float[Tensor, "class class"]:
    """Cosines of the class means with each other, as they are or less the mean over classes; NaN for an empty class.

    C directions cannot all be more than orthogonal: the largest cosine is at least −1/(C−1), which is what an even
    spread (a simplex) reaches, and centred means of two classes are always opposite.
    """
    counts = torch.bincount(labels, minlength=classes).double()
    means = torch.zeros(classes, units.shape[1], dtype=units.dtype).index_add_(0, labels, units)
    means = means / counts[:, None]
    if centred:
        means = means - means.nanmean(0)
    length = means.norm(dim=-1, keepdim=True)
    means = means / torch.where(length > 0, length, torch.nan)
    return (means @ means.T).clamp(-1, 1)
