"""Which earlier mention a mention goes back to: what attention chooses, and what simple rules choose."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

CANDIDATES = ("mentions", "words")
RULES = ("nearest", "head_match")


def chosen(
    attention: Float[Tensor, "head mention word"], candidates: Bool[Tensor, "mention word"]
) -> Int[Tensor, "head mention"]:
    """argmax_j α_ij over the candidates, i the head word of a mention; −1 where it gives them nothing."""
    best, where = attention.masked_fill(~candidates, 0.0).max(-1)
    return torch.where(best > 0, where, -1)


def nearest(mention: int, heads: Sequence[int]) -> int | None:
    """The last of the earlier mentions, by its head word."""
    earlier = [head for head in heads if head < heads[mention]]
    return max(earlier, default=None)


def head_match(mention: int, heads: Sequence[int], words: Sequence[str]) -> int | None:
    """The last of the earlier mentions with the same head word (upper and lower case are alike); else none."""
    own = words[heads[mention]].lower()
    same = [head for head in heads if head < heads[mention] and words[head].lower() == own]
    return max(same, default=None)
