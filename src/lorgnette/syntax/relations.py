"""A head as a parser: where each word's attention peaks, and whether the other end of its dependency is there."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

WAYS = ("to_head", "to_dependent", "read_by_head")


def peaks(
    attention: Float[Tensor, "*rest word word2"], words: Bool[Tensor, "*#rest word"]
) -> Int[Tensor, "*rest word"]:
    """argmax_j α_ij over the other words j that are there; −1 where a row gives them nothing.

    Clark et al. 2019, §4.2: the word itself, [CLS] and [SEP] are no candidates. Voita et al. 2019, §5.2, the same
    without <eos>. A causal model's first word sees no other word and has no peak.
    """
    itself = torch.eye(attention.shape[-1], dtype=torch.bool, device=attention.device)
    candidates = attention.masked_fill(itself | ~words[..., None, :], 0.0)
    best, where = candidates.max(-1)
    return torch.where((best > 0) & words, where, -1)


def relation_hits(
    rows: Int[Tensor, "batch head word"],
    columns: Int[Tensor, "batch head word"],
    governor: Int[Tensor, "batch word"],
) -> Bool[Tensor, "batch head word way"]:
    """For each dependent, whether the head finds its pair, by the `peaks` of rows and columns; in the order of `WAYS`.

        to_head        argmax_j α_dj = h        the dependent reads its head
        to_dependent   argmax_j α_hj = d        the head reads the dependent, of all that it could read (Voita)
        read_by_head   argmax_i α_id = h        of all words, the head reads the dependent most (Clark's transpose)

    `governor` is the position of each word's head, −1 for the root and where there is no word; those are not found.
    """
    goal = governor[:, None].expand_as(rows)
    known = goal >= 0
    at_head = rows.gather(-1, goal.clamp(min=0))
    word = torch.arange(rows.shape[-1], device=rows.device)
    return torch.stack([rows == goal, at_head == word, columns == goal], -1) & known[..., None]


def control_hits(
    rows: Int[Tensor, "batch head word"],
    visible: Bool[Tensor, "batch word word2"],
    governor: Int[Tensor, "batch word"],
) -> Float[Tensor, "batch head word way"]:
    """How often words that are no pair with a goal peak at it: what a head finds whoever asks (to_head, to_dependent).

        to_head        share of the words w with rows[w] = h, of those that see h and do not depend on it
        to_dependent   share of the words w with rows[w] = d, of those that see d and are not its head

    The control of `relation_hits` with relations permuted: a head that reads one word of a text, whichever word asks,
    finds as much here as there. Where no other word sees the goal, the control is the hit.
    """
    batch, heads, size = rows.shape
    word = torch.arange(size, device=rows.device)
    pair = (governor[..., None] == word) & visible  # [batch dependent governor]: the dependent sees its head
    back = (governor[..., None] == word).mT & visible  # [batch governor dependent]
    peaked = torch.zeros(batch, heads, size + 1, dtype=torch.float64, device=rows.device)
    peaked.scatter_add_(2, torch.where(rows < 0, size, rows), torch.ones_like(rows, dtype=torch.float64))
    query_counts = (visible & (word[:, None] != word)).sum(1).double()
    hits = relation_hits(rows, rows, governor)[..., :2].double()
    goal = governor[:, None].expand_as(rows).clamp(min=0)
    by_pairs = torch.zeros_like(peaked[..., :size]).scatter_add_(2, goal, hits[..., 0])
    out = []
    for mine, pairs, hit in ((by_pairs, pair, hits[..., 0]), (hits[..., 1], back, hits[..., 1])):
        others = (query_counts - pairs.sum(1))[:, None]
        share = (peaked[..., :size] - mine) / others.clamp(min=1)
        at = goal if pairs is pair else word.expand_as(goal)
        enough = others.expand_as(share).gather(2, at) > 0
        out.append(torch.where(enough, share.gather(2, at), hit))
    return torch.stack(out, -1)
