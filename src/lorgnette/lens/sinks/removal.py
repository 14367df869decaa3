"""A pass without some tokens: their values set to zero, or their keys hidden, head by head."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.texts.padding import positions_of

CHANGES = {
    "sink_value": ("sink", "value"),
    "sink_key": ("sink", "key"),
    "middle_value": ("middle", "value"),
    "middle_key": ("middle", "key"),
}
"""Whose values or keys are removed: the sink's, or, as a control, those of the token in the middle of the text."""


@dataclass(frozen=True)
class Keys:
    """One token for each text and head, and whether it is a sink there."""

    position: Int[Tensor, "text head"]
    exists: Bool[Tensor, "text head"]

    def pick(self, values: Float[Tensor, "text head key"]) -> Float[Tensor, "text head"]:
        return values.gather(-1, self.position[..., None])[..., 0]


def middle_keys(sinks: Keys, mask: Bool[Tensor, "text key"]) -> Keys:
    """The token in the middle of each text, or the one after it where that is the sink."""
    number = mask.sum(-1) // 2
    after = (number + 1).minimum(mask.sum(-1) - 1)
    middle, shifted = (positions_of(mask, each)[:, None].expand_as(sinks.position) for each in (number, after))
    return Keys(torch.where(middle == sinks.position, shifted, middle), sinks.exists)


class Removed(Tap):
    """Sets α of these tokens to zero: with "value" as if their value were zero, with "key" renormalised."""

    def __init__(self, keys: Mapping[Site, Keys], what: str) -> None:
        self.keys, self.what = keys, what

    def weights(
        self, call: Call, weights: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        keys = self.keys[call.site]
        columns = torch.zeros(*weights.shape[:2], weights.shape[-1], dtype=torch.bool, device=weights.device)
        columns.scatter_(-1, keys.position[..., None], keys.exists[..., None])
        left = weights.masked_fill(columns[:, :, None], 0.0)
        if self.what == "value":
            return left
        # A row that reads nothing but the hidden key keeps it: there is nothing else to read.
        total, was = left.sum(-1, keepdim=True), weights.sum(-1, keepdim=True)
        return torch.where(total > 1e-6 * was, left * was / total.where(total > 0, 1.0), weights)
