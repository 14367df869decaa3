"""Positions of words: sinusoidal, learnt and relative (TP 9, exercise 3)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.errors import UserError


def sinusoidal_positions(width: int, length: int) -> Float[Tensor, "length width"]:
    """pe_ih = sin(i / 10000^{h/d}) for even h, cos(i / 10000^{(h−1)/d}) for odd h, in float64.

    Vaswani et al. 2017, §3.5, in the notation of TP 9. Tells a model where a word is, not what to do with it.
    """
    component = torch.arange(width, dtype=torch.float64)
    even = component - component % 2
    angle = torch.arange(length, dtype=torch.float64)[:, None] / 10_000 ** (even / width)
    return torch.where(component % 2 == 0, angle.sin(), angle.cos())


class SinusoidalPositions(nn.Module):
    """x_i + scale · pe_i, for any length."""

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.width, self.scale = width, scale
        self._table = torch.empty(0, width, dtype=torch.float64)  # grows with the longest text; never saved

    def forward(self, states: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        length = states.shape[1]
        cached = self._table
        if len(cached) < length or cached.dtype != states.dtype or cached.device != states.device:
            # A table made under inference_mode could not be used in training afterwards.
            with torch.inference_mode(False), torch.no_grad():
                table = self.scale * sinusoidal_positions(self.width, max(length, len(cached)))
                self._table = table.to(device=states.device, dtype=states.dtype)
        return states + self._table[:length]


class LearntPositions(nn.Module):
    """x_i + p_i, one learnt vector for each of the first `length` positions (as in BERT)."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.table: nn.Parameter = nn.Parameter(torch.empty(length, width))

    def forward(self, states: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        length = states.shape[1]
        if length > len(self.table):
            raise UserError(
                f"a text of {length} tokens is longer than the {len(self.table)} learnt positions of this model: "
                "truncate it, or train with a larger max_position_embeddings."
            )
        return states + self.table[:length]


class RelativePositions(nn.Module):
    """A learnt number per head for every clipped offset j − i, added to the score of key j for query i.

    score_ij = q_i·k_j/√d + b_{clip(j − i, −K, K)}: the clipping of Shaw et al. 2018 with the scalar bias of T5 (Raffel
    et al. 2020). Starts at zero, which is a model without positions.
    """

    def __init__(self, heads: int, max_offset: int) -> None:
        super().__init__()
        self.max_offset = max_offset
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(heads, 2 * max_offset + 1))

    def forward(self, length: int) -> Float[Tensor, "1 head query key"]:
        if torch.compiler.is_exporting():  # a graph for texts of any length, which windows would fix
            place = torch.arange(length, device=self.bias.device)
            apart = (place[None, :] - place[:, None]).clamp(-self.max_offset, self.max_offset)
            return self.bias[:, apart + self.max_offset][None]
        offset = torch.arange(1 - length, length, device=self.bias.device).clamp(-self.max_offset, self.max_offset)
        line = self.bias[:, offset + self.max_offset]  # one number per offset; query i reads n from n − 1 − i on
        # Windows rather than an index of n² entries, whose gradient would add n² numbers one after the other.
        return line.unfold(1, length, 1).flip(1)[None]
