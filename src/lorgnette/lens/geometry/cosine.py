"""Mean pairwise cosine and its relatives, in time linear in the number of vectors.

With unit vectors û, Σ_{i<j} cos(x_i, x_j) = (‖Σ û‖² − n) / 2. So Σ û and n hold the mean cosine of all pairs exactly,
and they add up over batches. Vectors of length zero have no direction: they are left out and counted.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.errors import UserError

UNITS, UNITS_ALL, TOTAL, SQUARES, SQUARES_ALL = range(5)
COUNT, ZEROS, ENERGY = range(3)


@dataclass(frozen=True)
class Directions:
    """Sums over the tokens of each text, for every head and (last in `head_or_all`) for the heads side by side.

    The vector of all heads together is their concatenation, so its sums too are laid out as [head dim]. A single-head
    input is its own concatenation.
    """

    sums: Float[Tensor, "5 batch head dim"]
    """Σ_i of unit vectors of each head, of unit vectors of all heads, of the vectors; of the squared components of the
    unit vectors of each head, and of all heads"""
    counts: Float[Tensor, "3 batch head_or_all"]
    """how many vectors have a direction, how many have length zero, and Σ_i ‖x_i‖²"""

    @property
    def units(self) -> Float[Tensor, "batch head dim"]:
        """Σ_i x_i^h / ‖x_i^h‖."""
        return self.sums[UNITS]

    @property
    def total(self) -> Float[Tensor, "batch head dim"]:
        """Σ_i x_i."""
        return self.sums[TOTAL]

    @property
    def count(self) -> Float[Tensor, "batch head_or_all"]:
        return self.counts[COUNT]


def directions(vectors: Float[Tensor, "batch token head dim"], mask: Bool[Tensor, "batch token"]) -> Directions:
    """Everything that cosines of these vectors need, from a few passes over them."""
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    heads = vectors.shape[2]
    lengths = (vectors * vectors).sum(-1)  # ‖x‖² [batch token head]
    lengths = torch.cat([lengths, lengths.sum(-1, keepdim=True)], -1)
    here = mask[..., None] & (lengths > 0)
    weights = torch.where(here, lengths, 1.0).rsqrt() * here  # 1/‖x‖ where x counts
    units, squares = _weighted(vectors, weights[..., :heads, None])
    alone = heads == 1  # is its own concatenation
    units_all, squares_all = (units, squares) if alone else _weighted(vectors, weights[..., heads:, None])
    total = (vectors if bool(mask.all()) else vectors * mask[..., None, None]).sum(1)
    counts = (here, mask[..., None] & ~here, lengths * here)
    return Directions(
        torch.stack([units, units_all, total, squares, squares_all]),
        torch.stack([count.sum(1).to(vectors.dtype) for count in counts]),
    )


def _weighted(
    vectors: Float[Tensor, "batch token head dim"], weights: Float[Tensor, "batch token #head 1"]
) -> tuple[Float[Tensor, "batch head dim"], Float[Tensor, "batch head dim"]]:
    """Sums over the tokens of the weighted vectors and of their squares.

    Products and then a sum, not a matrix product: torch sums in cascades, which keeps float32 to 1e-7.
    """
    weighted = vectors * weights
    units = weighted.sum(1)
    squares = weighted.square() if weighted.requires_grad else weighted.square_()  # in the cache
    return units, squares.sum(1)


def mean_pairwise_cosine(units: Float[Tensor, "*batch dim"], count: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """SIM = 2/(n(n−1)) Σ_{i<j} cos(x_i, x_j) = (‖Σ û‖² − n) / (n(n−1)), in float64; 0 where n < 2 (undefined there).

    Fosse et al. 2023 (who credit Ethayarajh 2019); `units` is Σ û over n vectors.
    """
    return _mean_cosine(units.double().square().sum(-1), count.double())


def _mean_cosine(squared: Float[Tensor, "*batch"], n: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    return torch.where(n > 1, (squared - n) / (n * (n - 1)).clamp(min=1), 0.0)


def intra_similarity(
    units: Float[Tensor, "*batch dim"], total: Float[Tensor, "*batch dim"], count: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """IntraSim = (1/n) Σ_i cos(x_i, x̄) = (Σ û)·x̄ / (n ‖x̄‖): how close vectors are to their mean (Ethayarajh 2019).

    Not SIM: for vectors of equal length it is √(SIM (1 − 1/n) + 1/n), never below 1/√n. A mean of zero has no
    direction: 0 there.
    """
    units, total = units.double(), total.double()
    return _along((units * total).sum(-1), total.norm(dim=-1), count.double())


def _along(
    product: Float[Tensor, "*batch"], length: Float[Tensor, "*batch"], n: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    return product / (n * length).clamp(min=torch.finfo(torch.float64).tiny)


def within_texts(
    directions: Directions,
) -> tuple[Float[Tensor, "batch head_or_all 2"], Float[Tensor, "batch head_or_all 2"]]:
    """SIM and IntraSim of each text, of each head and of all together, and which of them are defined.

    What all heads have in common is a sum over heads of what each has: few operations, as each takes time.
    """
    sums, n = directions.sums[: TOTAL + 1].double(), directions.count.double()
    squared, products = sums.square().sum(-1), (sums[:TOTAL] * sums[TOTAL]).sum(-1)  # [sum batch head]
    length = _and_all(squared[TOTAL], squared[TOTAL]).sqrt()
    sim = _mean_cosine(_and_all(squared[UNITS], squared[UNITS_ALL]), n)
    intra = _along(_and_all(products[UNITS], products[UNITS_ALL]), length, n)
    enough = n > 1
    return torch.stack([sim, intra], -1), torch.stack([enough, enough & (length > 0)], -1).double()


def _and_all(own: Float[Tensor, "batch head"], parts: Float[Tensor, "batch head"]) -> Float[Tensor, "batch all"]:
    """Of each head, and behind them the sum of the parts that all of them have together."""
    return torch.cat([own, parts.sum(-1, keepdim=True)], -1)


def contributions(
    units: Float[Tensor, "*batch dim"], squares: Float[Tensor, "*batch dim"], count: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch dim"]:
    """What each dimension adds to the mean pairwise cosine: ((Σ û_d)² − Σ û_d²) / (n(n−1)); they sum to SIM.

    A dimension that makes up most of the cosine by itself is called rogue (Timkey & van Schijndel 2021, §3).
    """
    n = count.double()[..., None]
    return torch.where(n > 1, (units.double().square() - squares.double()) / (n * (n - 1)).clamp(min=1), 0.0)


def sim(vectors: Float[Tensor, "item dim"]) -> float:
    """SIM of some vectors: the mean cosine of all n(n−1)/2 pairs, exact, without making the pairs."""
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    n, rows = len(vectors), 64
    length = torch.linalg.vector_norm(vectors, dim=-1)
    zeros = int((length == 0).sum())
    whole = n - n % rows
    # Float32 within 64 rows, float64 over them: as fast as one long product, and right to 1e-8.
    inverse = length.reciprocal()
    parts = torch.bmm(inverse[:whole].view(-1, 1, rows), vectors[:whole].view(-1, rows, vectors.shape[1]))
    units = parts.sum((0, 1), dtype=torch.float64) + (inverse[whole:] @ vectors[whole:]).double()
    if zeros or n < 2:
        problem = f"{zeros} of them have length zero" if zeros else f"got {n}"
        raise UserError(f"SIM needs at least two vectors that are not zero; {problem}.")
    return float(mean_pairwise_cosine(units, torch.tensor(float(n), device=units.device)))
