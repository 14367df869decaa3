"""What a loss may add about attention: how far a row is from a given map."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.statistics.entropy import entropy, normalised_entropy

row_entropy = entropy  # the names under which fosse2023 imports them
__all__ = ["as_distribution", "kl_divergence", "mean_over", "normalised_entropy", "row_entropy", "soft_jaccard"]

SMALLEST = 1e-10
"""Stands in for a zero weight where a target has mass, so that a divergence is finite."""


def soft_jaccard(a: Float[Tensor, "*rest key"], b: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest"]:
    """Σ_j min(a_j, b_j) / Σ_j max(a_j, b_j) of two maps that are nowhere negative: 1 if they are equal, 0 if disjoint.

    Ruzicka's similarity; of two distributions it is (1 − t)/(1 + t), t their total variation distance. It does not see
    how far apart in the text two disjoint maps are. Two empty maps are equal.
    """
    union = torch.maximum(a, b).sum(-1)
    empty = union == 0
    ratio = torch.minimum(a, b).sum(-1) / union.masked_fill(empty, 1.0)
    return ratio.masked_fill(empty, 1.0)


def kl_divergence(target: Float[Tensor, "*rest key"], rows: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest"]:
    """KL(t ‖ a) = Σ_j t_j log(t_j / a_j) in nats; where t_j is 0 the term is 0, an a_j of 0 counts as 1e-10.

    Large where the row leaves out what the target has, small where it adds what the target does not have.
    """
    # xlogy: 0 log 0 = 0, also in the gradient.
    return (torch.special.xlogy(target, target) - target * rows.clamp(min=SMALLEST).log()).sum(-1)


def as_distribution(values: Float[Tensor, "batch key"]) -> tuple[Float[Tensor, "batch key"], Bool[Tensor, " batch"]]:
    """Each row divided by its sum, and which rows have one; the others stay zero."""
    total = values.sum(-1, keepdim=True)
    positive = total > 0
    return values / total.masked_fill(~positive, 1.0), positive[:, 0]


def mean_over(values: Float[Tensor, "*shape"], counted: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """The mean of the counted values; 0 if there are none."""
    count = counted.sum()
    return values.masked_fill(~counted, 0.0).sum() / count.clamp(min=1)
