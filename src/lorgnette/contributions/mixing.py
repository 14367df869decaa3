"""How much of a token's new vector comes from the other tokens: mixing ratios and their relatives."""

import torch
from jaxtyping import Float
from torch import Tensor


def mixing_ratio(others: Float[Tensor, "*rest"], own: Float[Tensor, "*rest"]) -> Float[Tensor, "*rest"]:
    """r = ‖Σ_{j≠i} term_j‖ / (‖Σ_{j≠i} term_j‖ + ‖term_i‖), from the two norms; NaN where both are zero.

    0: the token keeps to itself; 1: nothing of it is left. Kobayashi et al. 2021, §4. The norm is of the *sum* over the
    other tokens, whose terms may cancel.
    """
    return others / (others + own)


def off_diagonal_share(contributions: Float[Tensor, "*rest token token"]) -> Float[Tensor, "*rest token"]:
    """1 − C_ii / Σ_j C_ij: the share of the other tokens in a row of non-negative contributions; NaN for empty rows."""
    own = contributions.diagonal(dim1=-2, dim2=-1)
    total = contributions.sum(-1)
    return (total - own) / total


def terms(
    weights: Float[Tensor, "batch head query key"], transformed: Float[Tensor, "batch head key model"]
) -> Float[Tensor, "batch query key model"]:
    """Σ_h α^h_ij f^h(x_j), the vector itself for every pair: for measures that no Gram matrix can give."""
    per_key = torch.einsum("bhqk,bhkm->bkqm", weights, transformed)
    return per_key.transpose(1, 2)


def alti(
    terms: Float[Tensor, "batch query key model"], output: Float[Tensor, "batch query model"]
) -> Float[Tensor, "batch query key"]:
    """C_ij = max(0, ‖y_i‖₁ − ‖y_i − T_i(x_j)‖₁): how near a term brings the output; rows are not yet normalised.

    T_i(x_j) are the terms of the layer's output y_i with residual (and norm, where the layer ends with one). Ferrando,
    Gállego, Costa-jussà 2022, "Measuring the Mixing of Contextual Information in the Transformer", EMNLP.
    """
    whole = output.abs().sum(-1)
    distance = (output[:, :, None] - terms).abs().sum(-1)
    return (whole[..., None] - distance).clamp(min=0)


def cosine_distance(one: Float[Tensor, "*rest model"], other: Float[Tensor, "*rest model"]) -> Float[Tensor, "*rest"]:
    """1 − cos, the distance of Value Zeroing; 0 between two zero vectors, 1 if only one of them is zero."""
    product = one.norm(dim=-1) * other.norm(dim=-1)
    distance = 1 - (one * other).sum(-1) / product.where(product > 0, 1.0)
    both = (one == 0).all(-1) & (other == 0).all(-1)
    return distance.clamp(min=0).masked_fill(both, 0.0)
