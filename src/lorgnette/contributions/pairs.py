"""Some pairs of a query and a key of one call, with their weights and the norms of their values."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending.scores import Scores
from lorgnette.kernels import pair_kernels

_LOG2E = 1.4426950408889634


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
    """Number, weight and norm, where a kernel made them together."""

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

    def weigh(
        self, scores: Scores, log_sum: Float[Tensor, "text head query"], norms: Float[Tensor, "text head key"]
    ) -> None:
        """Weights from scores and the log-sum of their rows, for those who see no blocks; and their norms."""
        text, head, query, key = self.text, self.head, self.query, self.key
        plain = scores.softcap is None and scores.bias is None and scores.query.is_cuda
        if plain and (module := pair_kernels()) is not None:
            self.values = module.weighed(self, scores, log_sum, norms)
            return
        group = head // (scores.shape[1] // scores.key.shape[1])
        dot = (scores.query[text, head, query].float() * scores.key[text, group, key].float()).sum(-1) * scores.scale
        if scores.softcap is not None:
            dot = scores.softcap * torch.tanh(dot / scores.softcap)
        if scores.bias is not None:
            dot = dot + scores.bias.expand(scores.shape)[text, head, query, key]
        self.weight = (dot * _LOG2E - log_sum[text, head, query]).exp2().double()


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
