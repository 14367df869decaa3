"""Which positions look alike before training: the map of TP 9, question 3."""

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.models.classifier.positions import sinusoidal_positions


def position_similarity(width: int, length: int) -> Float[Tensor, "length length"]:
    """pe_i·pe_j for all i and j: the heat map of TP 9, question 3."""
    positions = sinusoidal_positions(width, length)
    return positions @ positions.T


def analytic_position_similarity(width: int, length: int) -> Float[Tensor, "length length"]:
    """Σ_k cos((i − j) / 10000^{2k/d}), k = 0 … d/2 − 1: what pe_i·pe_j must be.

    Each sine meets the cosine of its own frequency and sin a sin b + cos a cos b = cos(a − b): the map depends on i − j
    alone (Toeplitz) and its diagonal is d/2. It shows which positions look alike before training, not what a model
    makes of them.
    """
    if width % 2:
        raise UserError(f"the analytic form pairs a sine with a cosine: width must be even; got {width}.")
    frequency = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    position = torch.arange(length, dtype=torch.float64)
    offset = position[:, None] - position[None, :]
    return (offset[..., None] * frequency).cos().sum(dim=-1)
