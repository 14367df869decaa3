"""Copies of a batch that run together, each with other heads changed."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.kernels import Room
from lorgnette.texts.batch import Batch

TOKENS = Room(2**12, 2**16)
"""The most tokens of copies of a batch, each with another head replaced, that run together."""


def copies_together(batch: Batch) -> int:
    """How many copies of a batch are run at once."""
    tokens = batch.source.ids.numel() + (0 if batch.target is None else batch.target.ids.numel())
    return max(1, TOKENS.on(batch.source.ids.device) // tokens)


class ScaledCopies(Tap):
    """In each copy of a batch every head gives its output times a factor; sites without factors stay as they are.

    With means, what a factor takes away from a head is replaced by as much of its mean: f z + (1 − f) z̄.
    """

    def __init__(
        self,
        factors: Mapping[Site, Float[Tensor, "copy head"]],
        means: Mapping[Site, Float[Tensor, "head dim"]] | None = None,
    ) -> None:
        self.factors, self.means = factors, means

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        factors = self.factors.get(call.site)
        if factors is None:
            return context
        copies, scale = context.unflatten(0, (len(factors), -1)), factors.to(context)[:, None, :, None, None]
        scaled = copies * scale
        if self.means is not None:
            scaled = scaled + (1 - scale) * self.means[call.site][:, None, : context.shape[-1]].to(context)
        return scaled.flatten(0, 1)
