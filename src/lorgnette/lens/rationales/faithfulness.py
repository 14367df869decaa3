"""Faithfulness: does the model need the tokens that an explanation points to, and are they enough?

ERASER (DeYoung et al. 2020, §4): the tokens with the highest scores are taken away, or all others are, and the
probability of the class that was predicted for the whole text is looked at again. Here are the choice of tokens, the
shorter texts as ids, and the differences of probabilities; running the model is the caller's part.

A text without its first words is no text that anybody wrote: part of every difference is surprise.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SHARES = (0.01, 0.05, 0.10, 0.20, 0.50)
"""Of the tokens of a text; the steps over which ERASER takes its mean (AOPC)."""
_ROUNDING = 1e-9  # 0.1 · 70 is a little more than 7


def top_tokens(
    scores: Float[Tensor, "batch token"], among: Bool[Tensor, "batch token"], share: float
) -> Bool[Tensor, "batch token"]:
    """The ⌈share · n⌉ tokens with the highest scores of the n `among` which is chosen; of equals the first.

    At least one where there is one, so short texts lose more than the share says.
    """
    count = torch.ceil(among.sum(-1, keepdim=True) * share - _ROUNDING).long()
    order = scores.double().masked_fill(~among, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order)
    rank.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    return among & (rank < count)


def packed(
    values: Int[Tensor, "batch token"] | Bool[Tensor, "batch token"], keep: Bool[Tensor, "batch token"], fill: int
) -> Int[Tensor, "batch kept"] | Bool[Tensor, "batch kept"]:
    """The kept items of each row, moved to the left and padded with `fill` to the longest row."""
    lengths = keep.sum(-1)
    order = torch.argsort((~keep).to(torch.int8), dim=-1, stable=True)[:, : int(lengths.max())]
    real = torch.arange(order.shape[1], device=order.device) < lengths[:, None]
    return values.gather(1, order).masked_fill(~real, fill)


def deleted(
    ids: Int[Tensor, "batch token"], mask: Bool[Tensor, "batch token"], gone: Bool[Tensor, "batch token"], padding: int
) -> tuple[Int[Tensor, "batch kept"], Bool[Tensor, "batch kept"]]:
    """The texts without some tokens: the others close up, so their positions change. Ids and mask of real tokens."""
    keep = mask & ~gone
    return packed(ids, keep, padding), packed(keep, keep, False)


def masked(
    ids: Int[Tensor, "batch token"], gone: Bool[Tensor, "batch token"], mask_id: int
) -> Int[Tensor, "batch token"]:
    """The texts with some tokens replaced by one that says nothing: positions stay."""
    return ids.masked_fill(gone, mask_id)


def predicted_drop(
    whole: Float[Tensor, "batch label"], changed: Float[Tensor, "batch label"], target: int | None = None
) -> Float[Tensor, " batch"]:
    """m(x)_j − m(x′)_j, j the class predicted for the whole text x, or `target`; both are probabilities.

    Comprehensiveness if x′ is the text without its rationale (high: the tokens were needed); sufficiency if x′ is the
    rationale alone (low, also below 0: they were enough).
    """
    if target is not None:
        return (whole - changed)[..., target]
    return (whole - changed).gather(-1, whole.argmax(-1, keepdim=True))[..., 0]


def aopc(drops: Float[Tensor, "share batch"]) -> Float[Tensor, " batch"]:
    """The mean over the shares of tokens taken (area over the perturbation curve), for each text."""
    return drops.mean(0)
