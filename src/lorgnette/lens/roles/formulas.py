"""Numbers of one text that say what a head may be for: where its rows peak, and which pairs of tokens it links."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FREQUENT = 500
"""A text has a rare word if its rarest piece is not among this many most frequent ones (Voita et al. 2019, §5.3)."""


def peak_offsets(
    peak: Int[Tensor, "batch head query"],
    queries: Bool[Tensor, "batch query"],
    visible_keys: Bool[Tensor, "batch key"],
    offsets: Sequence[int],
) -> tuple[Bool[Tensor, "batch head query offset"], Bool[Tensor, "batch query offset"]]:
    """Whether the largest weight of row i is at key i + o, and for which queries there is a token at i + o at all.

    A head is positional if that holds for at least 90 % of the queries at one offset (Voita et al. 2019, §5.1).
    """
    offset = torch.tensor(offsets, device=peak.device)
    goal = torch.arange(peak.shape[2], device=peak.device)[:, None] + offset
    keys = visible_keys.shape[1]
    inside = (goal >= 0) & (goal < keys)
    valid = inside & visible_keys[:, goal.clamp(0, keys - 1)] & queries[..., None]
    return peak[..., None] == goal, valid


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

    def __init__(self, pairs: Bool[Tensor, "batch query key"], heads: int, dtype: torch.dtype) -> None:
        self.text, self.query, self.key = pairs.nonzero(as_tuple=True)  # in the order of texts, then of queries
        self.first = torch.searchsorted(self.text, torch.arange(len(pairs) + 1, device=pairs.device)).tolist()
        self.pairs = pairs
        self.masses: Tensor = torch.zeros(*pairs.shape[:2], heads, dtype=dtype, device=pairs.device)
        self.by_key: Tensor = self.masses.new_zeros(len(pairs), pairs.shape[2], heads)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        here = slice(self.first[texts.start], self.first[texts.stop])
        text, query, key = self.text[here], self.query[here], self.key[here]
        if weights.shape[2] < self.masses.shape[1]:
            inside = (query >= rows.start) & (query < rows.stop)
            text, query, key = text[inside], query[inside], key[inside]
        if len(text):
            at_pairs = weights[text - texts.start, :, query - rows.start, key]  # [pair head]
            for total, place in ((self.masses, query), (self.by_key, key)):
                total.view(-1, total.shape[2]).index_add_(0, text * total.shape[1] + place, at_pairs.to(total.dtype))

    def of_heads(self) -> Float[Tensor, "batch head query"]:
        return self.masses.transpose(1, 2)

    def by_others(
        self, received: Float[Tensor, "batch head key"], query_counts: Int[Tensor, "batch key"]
    ) -> Float[Tensor, "batch head query"]:
        """The same sums, if each query gave a key the mean weight of the queries that form no such pair with it."""
        by_pairs, count = self.by_key.transpose(1, 2), self.pairs.sum(1)
        shares = by_others(received, by_pairs, query_counts, count)
        return shares.to(by_pairs.dtype) @ self.pairs.mT.to(by_pairs.dtype)


def by_others(
    received: Float[Tensor, "batch head *key"],
    by_pairs: Float[Tensor, "batch head *key"],
    query_counts: Int[Tensor, "batch *key"],
    pairs: Int[Tensor, "batch *key"],
) -> Float[Tensor, "batch head *key"]:
    """C_j = (R_j − M_j) / (V_j − N_j): what a key gets from a query that is no pair with it, of those that see it.

    R_j is what all words give to key j, M_j what those that are a pair with it give, V_j and N_j count them. It is the
    control of Σ α_ij over pairs with the pairs permuted: a head in which all queries attend to key j alike has the same
    number here as there. Where only pairs see a key there is nothing to compare with, and C_j is their own mean.
    """
    others = (query_counts - pairs)[:, None]
    own = by_pairs / pairs.clamp(min=1)[:, None]
    return torch.where(others > 0, (received - by_pairs) / others.clamp(min=1), own)


def neighbours_by_others(
    at: Float[Tensor, "batch head query offset"],
    received: Float[Tensor, "batch head key"],
    visible: Bool[Tensor, "batch query key"],
    query_counts: Int[Tensor, "batch key"],
    offsets: Sequence[int],
) -> Float[Tensor, "batch head query offset"]:
    """For each query i and offset o what the other words give to the token at i + o; `at` is what i gives to it.

    `query_counts` counts the words that see each key.
    """
    offset, query = torch.tensor(offsets, device=at.device), torch.arange(at.shape[2], device=at.device)[:, None]
    goal = (query + offset).clamp(0, received.shape[-1] - 1)
    return by_others(received[:, :, goal].to(at.dtype), at, query_counts[:, goal], visible[:, query, goal].long())


def peaks_received(
    peak: Int[Tensor, "batch head query"], queries: Bool[Tensor, "batch query"], keys: int
) -> Float[Tensor, "batch head key"]:
    """How many of the words have their largest weight at each key."""
    counts = torch.zeros(*peak.shape[:2], keys, dtype=torch.float64, device=peak.device)
    return counts.scatter_add_(2, peak, queries[:, None].expand_as(peak).to(counts.dtype))


def even_shares(
    kinds: Bool[Tensor, "batch key kind"], visible: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query kind"]:
    """The weight on keys of each kind if a row gave every key that it sees as much: the keys permuted."""
    count = visible.sum(-1, keepdim=True).clamp(min=1)
    return visible.double() @ kinds.double() / count


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
    values = hidden[:, None].expand_as(received).gather(-1, where[..., None])[..., 0]
    counting = (hidden >= ordered[:, 1:2]) & candidates
    chance = counting.sum(-1) / candidates.sum(-1).clamp(min=1)
    return values == ordered[:, :1], values >= ordered[:, 1:2], chance, enough & (ordered[:, 0] > FREQUENT)


def mean_of_queries(
    values: Tensor, counted: Bool[Tensor, "text query column"]
) -> tuple[Float[Tensor, "text head column"], Float[Tensor, "text column"]]:
    """[text head query column] → mean over the queries that count, and how many they are."""
    wide = values if values.is_floating_point() and values.dtype.itemsize >= 4 else values.double()
    counts = counted.sum(1).to(wide.dtype)
    return (wide * counted[:, None]).sum(2) / counts.clamp(min=1)[:, None], counts
