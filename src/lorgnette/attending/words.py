"""From word pieces to words."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def to_words(
    weights: Float[Tensor, "*rest query key"], query: Int[Tensor, " query"], key: Int[Tensor, " key"]
) -> Float[Tensor, "*rest query_word key_word"]:
    """Attention between words: *to* a word the sum over its pieces, *from* a word the mean over its pieces.

    So rows still sum to one. `query` and `key` number the word of each piece (`Tokens.units`). Clark et al. 2019, §4.1.
    """
    summed = weights.new_zeros(*weights.shape[:-1], int(key.max()) + 1).index_add(-1, key, weights)
    rows = int(query.max()) + 1
    total = summed.new_zeros(*summed.shape[:-2], rows, summed.shape[-1]).index_add(-2, query, summed)
    pieces = torch.bincount(query, minlength=rows).to(weights.dtype)
    return total / pieces[:, None]


def between_words(
    weights: Float[Tensor, "batch head query key"], word: Int[Tensor, "batch token"], words: int
) -> tuple[Float[Tensor, "batch head word word2"], Bool[Tensor, "batch word"]]:
    """`to_words` for a padded batch: attention between the words 0 … words − 1 of each text, and which have a piece.

    Pieces of no word (−1: special tokens, padding) are left out, so rows sum to what they give to words. A word
    without a piece gives and receives nothing.
    """
    member = (word[..., None] == torch.arange(words, device=word.device)).to(weights.dtype)
    pieces = member.sum(1)
    mean = member / pieces.clamp(min=1)[:, None]
    return mean.mT[:, None] @ (weights @ member[:, None]), pieces > 0
