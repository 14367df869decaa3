"""The standard error of a rank correlation when the items come in texts."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.statistics.spearman import spearman


def spearman_with_error(
    one: Float[Tensor, " item"], other: Float[Tensor, " item"], text: Int[Tensor, " item"]
) -> tuple[float, float, int] | None:
    """Spearman's ρ, its standard error over texts, and the number of texts; None where one side is constant.

    With mid-distribution functions F and G (ties count half), ρ = C / √(V_F V_G), C = E[FG] − ¼, V_F = E[F²] − ¼. Each
    is a mean over pairs or triples of items, and moving a little mass to item i changes ρ by

        ψ_i = dC_i / √(V_F V_G) − ρ/2 · (dV_F,i / V_F + dV_G,i / V_G)

    (Croux & Dehon 2010, "Influence functions of the Spearman and Kendall correlation measures"; the terms for ties are
    ours). Then se² = T/(T−1) · Σ_t (Σ_{i in t} ψ_i)² / N²: texts are the clusters. NaN with one text.
    """
    rho = spearman(one, other)
    if rho is None:
        return None
    f, above_one = _places(one)
    g, above_other = _places(other)
    covariance, spread_f, spread_g = ((x * y).mean() - 0.25 for x, y in ((f, g), (f, f), (g, g)))
    moved = f * g + above_one(g) + above_other(f) - 3 * (f * g).mean()
    moved_f = f * f + 2 * above_one(f) - 3 * (f * f).mean()
    moved_g = g * g + 2 * above_other(g) - 3 * (g * g).mean()
    scale = (spread_f * spread_g).sqrt()
    influence = moved / scale - covariance / scale / 2 * (moved_f / spread_f + moved_g / spread_g)
    _, which = torch.unique(text, return_inverse=True)
    per_text = torch.bincount(which, weights=influence)
    texts = len(per_text)
    if texts < 2:
        return rho, float("nan"), texts
    return rho, float((texts / (texts - 1) * per_text.square().sum()).sqrt()) / len(one), texts


def _places(values: Float[Tensor, " item"]) -> tuple[Float[Tensor, " item"], Callable[[Tensor], Tensor]]:
    """F of each item, and the function that averages weights over the items above it (its equals count half)."""
    _, which, counts = torch.unique(values, return_inverse=True, return_counts=True)
    below = counts.cumsum(0) - counts
    place = (below + counts / 2.0).double() / len(values)

    def above(weights: Float[Tensor, " item"]) -> Float[Tensor, " item"]:
        each = torch.bincount(which, weights=weights.double(), minlength=len(counts))
        total = each.flip(0).cumsum(0).flip(0) - each / 2
        return (total / len(values))[which]

    return place[which], above
