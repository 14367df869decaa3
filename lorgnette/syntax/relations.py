"""A head as a parser: where each word's attention peaks, and whether the other end of its dependency is there."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

WAYS = ("to_head", "to_dependent", "read_by_head")


def peaks(
    attention: Float[Tensor, "*rest word word2"], there: Bool[Tensor, "*#rest word"]
) -> Int[Tensor, "*rest word"]:
    """argmax_j α_ij over the other words j that are there; −1 where a row gives them nothing.

    Clark et al. 2019, §4.2: the word itself, [CLS] and [SEP] are no candidates. Voita et al. 2019, §5.2, the same
    without <eos>. A causal model's first word sees no other word and has no peak.
    """
    itself = torch.eye(attention.shape[-1], dtype=torch.bool, device=attention.device)
    candidates = attention.masked_fill(itself | ~there[..., None, :], 0.0)
    best, where = candidates.max(-1)
    return torch.where((best > 0) & there, where, -1)


def found(
    attention: Float[Tensor, "batch head word word2"],
    there: Bool[Tensor, "batch word"],
    governor: Int[Tensor, "batch word"],
) -> Bool[Tensor, "batch head word way"]:
    """For each dependent, whether the head finds its pair, in the order of `WAYS`.

        to_head        argmax_j α_dj = h        the dependent reads its head
        to_dependent   argmax_j α_hj = d        the head reads the dependent, of all that it could read (Voita)
        read_by_head   argmax_i α_id = h        of all words, the head reads the dependent most (Clark's transpose)

    `governor` is the position of each word's head, −1 for the root and where there is no word; those are not found.
    """
    rows, columns = peaks(attention, there[:, None]), peaks(attention.mT, there[:, None])
    goal = governor[:, None].expand_as(rows)
    known = goal >= 0
    at_head = rows.gather(-1, goal.clamp(min=0))
    word = torch.arange(rows.shape[-1], device=rows.device)
    return torch.stack([rows == goal, at_head == word, columns == goal], -1) & known[..., None]


def share_interval(share: float, error: float, count: int) -> tuple[float, float]:
    """95 % interval of a share, from its standard error over texts: Wilson's, with the count that the error implies.

        n = p (1 − p) / se²,    at most the number of items counted

    Wilson 1927. Where all or none are hits the error is 0 and says nothing; n is then the number of items.
    """
    if count < 1 or math.isnan(share):
        return math.nan, math.nan
    spread = share * (1 - share)
    size = count if not error > 0 or spread <= 0 else min(spread / error**2, count)
    z = 1.959964
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(spread / size + z**2 / (4 * size**2))
    return min(max(0.0, middle - half), share), max(min(1.0, middle + half), share)
