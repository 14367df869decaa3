"""Attention mixes values: y_i = Σ_j α_ij v_j lies in the cone of the v_j. How wide is it, and how much is used?"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending.scores import Scores

BLOCK = 2**20
"""Pairs of a row and a key at a time, where rows see different keys."""
_EQUAL = 1e-13  # cosines nearer to 1 than this are of one direction: angles below 5e-7


@dataclass(frozen=True)
class Cone:
    """For each row: the mean of the values that it may see, and the angles of those values with it.

    Where all rows see the same keys there is one row for all of them.
    """

    mean: Float[Tensor, "batch head row dim"]
    widest: Float[Tensor, "batch head row"]
    average: Float[Tensor, "batch head row"]


def angle(one: Float[Tensor, "*#batch dim"], other: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch"]:
    """The angle between two vectors in radians: 2 atan2(‖û − v̂‖, ‖û + v̂‖), exact for small angles, unlike arccos.

    0 where one of them is zero, which has no direction.
    """
    (a, size), (b, length) = direction(one), direction(other)
    angle = 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))
    return torch.where((size > 0) & (length > 0), angle, 0.0)


def direction(vectors: Float[Tensor, "*batch dim"]) -> tuple[Float[Tensor, "*batch dim"], Float[Tensor, "*batch"]]:
    """x/‖x‖, zero where x is; and ‖x‖."""
    length = vectors.norm(dim=-1)
    return vectors / torch.where(length > 0, length, 1.0)[..., None], length


def cone(scores: Scores, value: Float[Tensor, "batch head key dim"]) -> Cone:
    """The cone of the values around their mean, of what each row may see; values of length zero have no angle."""
    value = value.double()
    if scores.rows_alike:
        return _cone(scores.visible_keys()[:, :, :1], value)
    batch, heads, rows, keys = scores.shape
    step = max(1, BLOCK // (batch * heads * keys))
    parts = []
    for start in range(0, rows, step):
        block = scores.block(rows=slice(start, min(start + step, rows)))
        parts.append(_cone(block.visible_keys(), value))
    return Cone(*(torch.cat([getattr(part, name) for part in parts], 2) for name in Cone.__dataclass_fields__))


def _cone(visible: Bool[Tensor, "#batch #head row key"], value: Float[Tensor, "batch head key dim"]) -> Cone:
    visible = visible.expand(*value.shape[:2], *visible.shape[2:])
    mean = visible.double() @ value / visible.sum(-1, keepdim=True).clamp(min=1)
    toward, length = direction(value)
    cosine = direction(mean)[0] @ toward.transpose(-1, -2)
    angles = torch.where(cosine > 1 - _EQUAL, 0.0, cosine.clamp(-1, 1).arccos())
    counted = visible & (length > 0)[:, :, None]
    angles = torch.where(counted, angles, 0.0)
    return Cone(mean, angles.amax(-1), angles.sum(-1) / counted.sum(-1).clamp(min=1))
