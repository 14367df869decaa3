"""What a head may be for, as numbers of one text: where its rows peak, and which pairs of tokens it joins."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FREQUENT = 500
"""A text has a rare word if its rarest piece is not among this many most frequent ones (Voita et al. 2019, §5.3)."""


def peak_offsets(
    peak: Int[Tensor, "batch head query"],
    asking: Bool[Tensor, "batch query"],
    read: Bool[Tensor, "batch key"],
    offsets: Sequence[int],
) -> tuple[Bool[Tensor, "batch head query offset"], Bool[Tensor, "batch query offset"]]:
    """Whether the largest weight of row i is at key i + o, and for which queries there is a token at i + o at all.

    A head is positional if that holds for at least 90 % of the queries at one offset (Voita et al. 2019, §5.1).
    """
    offset = torch.tensor(offsets, device=peak.device)
    goal = torch.arange(peak.shape[2], device=peak.device)[:, None] + offset
    keys = read.shape[1]
    inside = (goal >= 0) & (goal < keys)
    there = inside & read[:, goal.clamp(0, keys - 1)] & asking[..., None]
    return peak[..., None] == goal, there


def same_word(
    queries: Int[Tensor, "batch query"], keys: Int[Tensor, "batch key"], *, itself: bool
) -> Bool[Tensor, "batch query key"]:
    """Pairs of equal pieces; `itself` says whether a token is a pair with itself (between two texts it may be)."""
    same = queries[:, :, None] == keys[:, None, :]
    return same if itself else same & ~torch.eye(same.shape[-1], dtype=torch.bool, device=same.device)


def after_same_word(ids: Int[Tensor, "batch token"]) -> Bool[Tensor, "batch query key"]:
    """Pairs (i, j) with x_{j−1} = x_i and j − 1 < i: what followed the last times that piece i was there.

    An induction head reads it (Olsson et al. 2022). The token itself is left out, though it may follow its own double.
    """
    size = ids.shape[1]
    pairs = torch.zeros(len(ids), size, size, dtype=torch.bool, device=ids.device)
    pairs[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    earlier = torch.ones(size, size, dtype=torch.bool, device=ids.device).tril(-1)
    return pairs & earlier


class PairMasses:
    """Watches the rows of a call: Σ_j α_ij over the pairs (i, j) of one kind, which are few."""

    text: Tensor
    query: Tensor
    key: Tensor

    def __init__(self, pairs: Bool[Tensor, "batch query key"], heads: int, dtype: torch.dtype) -> None:
        self.text, self.query, self.key = pairs.nonzero(as_tuple=True)  # in the order of texts, then of queries
        self.first = torch.searchsorted(self.text, torch.arange(len(pairs) + 1, device=pairs.device)).tolist()
        self.masses: Tensor = torch.zeros(*pairs.shape[:2], heads, dtype=dtype, device=pairs.device)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        here = slice(self.first[texts.start], self.first[texts.stop])
        text, query, key = self.text[here], self.query[here], self.key[here]
        if weights.shape[2] < self.masses.shape[1]:
            inside = (query >= rows.start) & (query < rows.stop)
            text, query, key = text[inside], query[inside], key[inside]
        if len(text):
            at_pairs = weights[text - texts.start, :, query - rows.start, key]  # [pair head]
            place = text * self.masses.shape[1] + query
            self.masses.view(-1, self.masses.shape[2]).index_add_(0, place, at_pairs.to(self.masses.dtype))

    def of_heads(self) -> Float[Tensor, "batch head query"]:
        return self.masses.transpose(1, 2)


def rare_words(
    received: Float[Tensor, "batch head key"],
    rank: Float[Tensor, "batch key"],
    candidates: Bool[Tensor, "batch key"],
) -> tuple[Bool[Tensor, "batch head"], Bool[Tensor, "batch head"], Float[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Whether the most read candidate is the rarest, or one of the two rarest; chance of the latter; which texts count.

    `rank` 1 is the most frequent piece. Pieces as rare as the second rarest count as one of the two, and chance knows
    it: it is the share of candidates that would count. Texts count if their rarest piece is not among the `FREQUENT`
    most frequent ones, and if they have more than two pieces. Voita et al. 2019, §5.3.
    """
    hidden = rank.masked_fill(~candidates, 0.0)
    ordered = hidden.sort(-1, descending=True).values
    enough = candidates.sum(-1) > 2
    if ordered.shape[-1] < 2:
        nothing = torch.zeros_like(received[..., 0], dtype=torch.bool)
        return nothing, nothing, torch.zeros_like(rank[:, 0]), torch.zeros_like(enough)
    where = received.masked_fill(~candidates[:, None], -1.0).argmax(-1)
    found = hidden[:, None].expand_as(received).gather(-1, where[..., None])[..., 0]
    counting = (hidden >= ordered[:, 1:2]) & candidates
    chance = counting.sum(-1) / candidates.sum(-1).clamp(min=1)
    return found == ordered[:, :1], found >= ordered[:, 1:2], chance, enough & (ordered[:, 0] > FREQUENT)
