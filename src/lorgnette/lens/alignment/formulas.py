"""Word alignment from cross-attention, and how it is scored."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def predicted_words(word: Int[Tensor, " query"]) -> Int[Tensor, " query"]:
    """The word that each decoder row predicts, given the word of the token that each row reads: that of the next row.

    The last row predicts the end of the sentence, which is no word.
    """
    return torch.cat([word[1:], word.new_full((1,), -1)])


def word_scores(
    scores: Float[Tensor, "*rest query key"],
    query_word: Int[Tensor, " query"],
    key_word: Int[Tensor, " key"],
    words: tuple[int, int],
) -> Float[Tensor, "*rest target_word source_word"]:
    """Scores between words: to a source word the sum over its pieces, from a target word the mean over its rows.

    Pieces of no word (−1: special tokens, padding) are left out. `words` is how many target and source words there
    are; one without a piece gets −inf. Kobayashi et al. 2020, §5.
    """
    targets, sources = words
    rows, columns = query_word >= 0, key_word >= 0
    picked = scores[..., rows, :][..., columns]
    to = picked.new_zeros(*picked.shape[:-1], sources).index_add(-1, key_word[columns], picked)
    total = to.new_zeros(*to.shape[:-2], targets, sources).index_add(-2, query_word[rows], to)
    pieces = torch.bincount(query_word[rows], minlength=targets)
    silent = (pieces == 0)[:, None] | (torch.bincount(key_word[columns], minlength=sources) == 0)
    return (total / pieces.clamp(min=1)[:, None].to(total.dtype)).masked_fill(silent, -torch.inf)


def links(
    scores: Float[Tensor, "*rest target_word source_word"],
) -> tuple[Int[Tensor, "*rest target_word"], Bool[Tensor, "*rest target_word"]]:
    """The source word that each target word is aligned with (the largest score), and whether it has any."""
    best, source = scores.max(-1)
    return source, ~best.isneginf()


def agreement(
    source: Int[Tensor, "*rest target_word"],
    linked: Bool[Tensor, "*rest target_word"],
    sure: Bool[Tensor, "target_word source_word"],
    possible: Bool[Tensor, "target_word source_word"],
) -> tuple[Int[Tensor, "*rest"], Int[Tensor, "*rest"], Int[Tensor, "*rest"]]:
    """|A ∩ S|, |A ∩ P| and |A| of the links A, one for each target word that has one."""
    target = torch.arange(source.shape[-1], device=source.device).expand(source.shape)
    hits = [(gold[target, source] & linked).sum(-1) for gold in (sure, possible)]
    return hits[0], hits[1], linked.sum(-1)


def alignment_error_rate(
    in_sure: Int[Tensor, "*rest"], in_possible: Int[Tensor, "*rest"], predicted: Int[Tensor, "*rest"], sure: int
) -> Float[Tensor, "*rest"]:
    """AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|); 0 where there is nothing to find and nothing was found.

    Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models". S ⊆ P: a possible link that is
    missing costs nothing, and one that is found is no error.
    """
    total = predicted + sure
    return torch.where(total > 0, 1 - (in_sure + in_possible).double() / total.clamp(min=1), 0.0)
