"""Attention rollout: how much of each input is in each state, if layers only mixed their tokens."""

import torch
from jaxtyping import Float
from torch import Tensor


def half_residual(weights: Float[Tensor, "*batch head query key"]) -> Float[Tensor, "*batch query key"]:
    """½ mean_h α + ½ I: all heads count equally, and the residual as much as all heads together.

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", ACL, §3.
    """
    mean = weights.mean(-3)
    return (mean + torch.eye(*mean.shape[-2:], dtype=mean.dtype, device=mean.device)) / 2


def row_shares(norms: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """‖term_ij‖ / Σ_j ‖term_ij‖; a row in which nothing arrives at all stays zero."""
    return norms / norms.sum(-1, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)


def rolled_out(mixing: Float[Tensor, "layer *batch token token"]) -> Float[Tensor, "layer *batch token token"]:
    """R_l = M_l M_{l−1} … M_1: row i of R_l shares the state of token i above layer l out over the input tokens."""
    out = [mixing[0]]
    for layer in mixing[1:]:
        out.append(layer @ out[-1])
    return torch.stack(out)
