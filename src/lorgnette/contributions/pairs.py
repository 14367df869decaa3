"""Some pairs of a query and a key of one call, with their weights and the norms of their values."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending.scores import Scores


@dataclass
class TokenPairs:
    """Sampled pairs of one call: which they are, their random numbers, and their weights once they are known."""

    text: Int[Tensor, " pair"]
    head: Int[Tensor, " pair"]
    query: Int[Tensor, " pair"]
    key: Int[Tensor, " pair"]
    kind: Int[Tensor, " pair"]
    number: Float[Tensor, " pair"]
    weight: Float[Tensor, " pair"]
    values: Float[Tensor, "what pair"] | None = None
    """Number, weight and norm, where they were made together."""

    def look(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        """Read the weights of those pairs that lie in this block; the pairs are in the order of their texts."""
        first, last = torch.searchsorted(self.text, self.text.new_tensor([texts.start, texts.stop])).tolist()
        here: slice | Tensor = slice(first, last)
        inside = (self.query[here] >= rows.start) & (self.query[here] < rows.stop)
        if not inside.all():
            here = inside.nonzero()[:, 0] + first
        _, heads, height, width = weights.shape
        row = ((self.text[here] - texts.start) * heads + self.head[here]) * height + self.query[here] - rows.start
        self.weight[here] = weights.take(row * width + self.key[here]).double()


def visible(scores: Scores, text: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Bool[Tensor, " pair"]:
    """Whether each query may see its key."""
    mask, band = scores.hidden
    distance = query + (scores.shape[3] - scores.shape[2]) - key
    out = distance >= 0 if band.causal else torch.ones_like(text, dtype=torch.bool)
    if band.window is not None:
        out &= distance.abs() <= band.window
    if mask is not None:
        out &= mask.expand(scores.shape)[text, head, query, key]
    return out
