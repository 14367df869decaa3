"""The scores of an attention call, for all rows or for a block of them, and the context that they give."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending.band import Band, BandMask, plain
from lorgnette.errors import UserError

# Masked scores are this instead of -inf: exp underflows to an exact 0, and 0 · s stays 0 instead of becoming NaN.
MASKED = -1e30

EVERY = slice(None)
Rows = slice | Sequence[int] | Int[Tensor, " row"]
"""Some query rows: a slice, or their positions; negative ones count from the end."""


def row_positions(rows: Rows, queries: int) -> Rows:
    """Query rows as positions from 0: a band compares positions and cannot take negative ones."""
    if isinstance(rows, slice):
        return slice(*rows.indices(queries))
    if isinstance(rows, Tensor):
        return torch.where(rows < 0, rows + queries, rows)
    for row in rows:
        if not -queries <= row < queries:
            raise UserError(
                f"There is no query row {row}: with {queries} queries, rows are 0 to {queries - 1}, or from the end −1 "
                f"to −{queries}."
            )
    return [row % queries for row in rows]


@dataclass(frozen=True)
class Scores:
    """Everything that enters softmax(scale · q kᵀ + bias), before the product is taken.

    `bias`, `allowed`: broadcastable to [batch head query key]; `causal` lets row i see keys up to i + offset, where
    offset = number of keys − number of queries (a cache of earlier keys). A `BandMask` in place of `allowed` is padding
    with such a band, or a window; `hidden` has the parts of either. There may be fewer keys than heads: those of a
    group share one. `softcap` c replaces s by c·tanh(s/c), before bias and mask, as Gemma-2 does. `sink` is a score for
    each head, the same for every row, that takes part in the softmax and belongs to no key (gpt-oss): the weights of a
    row add up to less than one, the rest is the sink's.
    """

    query: Float[Tensor, "batch head query dim"]
    key: Float[Tensor, "batch group key dim"]
    scale: float
    allowed: Bool[Tensor, "..."] | None = None
    bias: Float[Tensor, "..."] | None = None
    causal: bool = False
    softcap: float | None = None
    sink: Float[Tensor, " head"] | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, head, query, _ = self.query.shape
        return batch, head, query, self.key.shape[2]

    @property
    def hides(self) -> bool:
        """Whether some rows may see no key at all."""
        return self.causal or self.allowed is not None or self.bias is not None

    @property
    def plain(self) -> bool:
        """True if the scores are nothing but scale · q kᵀ and a mask."""
        return self.bias is None and self.softcap is None

    def visible(self) -> Int[Tensor, "batch 1 query"]:
        """Number of keys that each row may see: the n whose log is the largest entropy the row can have.

        A sink counts as one more, in rows that may see anything.
        """
        count = self._visible()
        return count if self.sink is None else count + (count > 0).to(count.dtype)

    @property
    def hidden(self) -> "tuple[Bool[Tensor, '...'] | None, Band]":
        """Both parts of the mask, plain and band: a key is visible if neither hides it."""
        mask = self.allowed
        if isinstance(mask, BandMask):
            if mask.intact:
                return mask.padding, Band(self.causal or mask.band.causal, mask.band.window)
            mask = mask.whole
        return mask, Band(self.causal)

    @property
    def rows_alike(self) -> bool:
        """Whether all rows may see the same keys."""
        mask, band = self.hidden
        return not band and (mask is None or mask.shape[2] == 1)

    def _visible(self) -> Int[Tensor, "batch 1 query"]:
        batch, _, queries, keys = self.shape
        mask, band = self.hidden
        if mask is not None and (not band or mask.shape[1:3] != (1, 1)):
            # A key that no head may see is what padding, causality and windows give; a mask per head is not.
            seen = self.visible_keys() if band else mask.expand(-1, -1, -1, keys)
            return seen.sum(-1).amax(1, keepdim=True).expand(batch, 1, queries)
        first, behind = band.limits(queries, keys, self.query.device)
        if mask is None:
            return (behind - first).expand(batch, 1, queries)
        before = F.pad(mask[:, :, 0].expand(-1, -1, keys).cumsum(-1), (1, 0))
        return (before[..., behind] - before[..., first]).expand(batch, 1, queries)

    def query_counts(self, counted: Bool[Tensor, "batch query"]) -> Int[Tensor, "batch key"]:
        """How many of these queries may see each key."""
        _, _, queries, keys = self.shape
        mask, band = self.hidden
        if mask is not None and mask.shape[1:3] != (1, 1):
            return (self.visible_keys().any(1) & counted[..., None]).sum(1)
        first, behind = band.query_range(queries, keys, counted.device)
        before = F.pad(counted.cumsum(-1), (1, 0))
        count = before[:, behind] - before[:, first]
        return count if mask is None else count * mask[:, 0, 0]

    def visible_keys(self) -> Bool[Tensor, "batch heads query key"]:
        """Which keys each row may see; `heads` is 1 where all heads may see the same."""
        batch, _, queries, keys = self.shape
        allowed = whole_mask(self)
        if allowed is None:
            allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.query.device)
        return allowed.expand(batch, -1, queries, keys)

    def block(self, texts: slice = EVERY, rows: Rows = EVERY, heads: slice = EVERY, columns: slice = EVERY) -> "Scores":
        """The scores of some rows of some texts and heads; what the band hides is in the mask now.

        `columns` are the keys to keep: without padding at the end, which no row sees, the mask is often not needed.
        """
        queries, keys = self.shape[2:]
        rows = row_positions(rows, queries)
        mask, band = self.hidden
        allowed = None if mask is None else part(mask, texts, heads, rows)
        if band:
            places = rows if isinstance(rows, slice) else torch.as_tensor(rows, device=self.query.device)
            near = band.keys(places, queries, keys, self.query.device)
            allowed = near[None, None] if allowed is None else allowed & near
        bias = None if self.bias is None else part(self.bias, texts, heads, rows)
        if columns != EVERY:
            allowed, bias = (
                each if each is None or each.shape[-1] == 1 else each[..., columns] for each in (allowed, bias)
            )
        if allowed is not None and allowed.is_cpu and bool(allowed.all()):  # on a GPU, Python would wait for the result
            allowed = None
        query, key = self.query[texts, heads][:, :, rows], self.key[texts][:, :, columns]
        key = key if heads == EVERY else per_query_head(key, self.shape[1])[:, heads]
        sink = None if self.sink is None else self.sink[heads]
        return Scores(query, key, self.scale, allowed, bias, False, self.softcap, sink)


def per_query_head(grouped: Float[Tensor, "batch group key dim"], heads: int) -> Float[Tensor, "batch head key dim"]:
    """Keys or values, repeated for every head of their group."""
    groups = grouped.shape[1]
    return grouped if groups == heads else grouped.repeat_interleave(heads // groups, dim=1)


def whole_mask(scores: Scores) -> Bool[Tensor, "..."] | None:
    """Mask and band combined in one plain mask."""
    allowed = None if scores.allowed is None else plain(scores.allowed)
    if scores.causal:
        _, _, queries, keys = scores.shape
        rows = Band(causal=True).keys(EVERY, queries, keys, scores.query.device)
        allowed = rows[None, None] if allowed is None else allowed & rows
    return allowed


def part(tensor: Tensor, batch: slice, head: slice, rows: Rows) -> Tensor:
    """Cut a tensor that broadcasts to [batch head query key] down to a block."""
    texts, queries = len(tensor) > 1, tensor.shape[2] > 1
    tensor = tensor[batch if texts else EVERY, head if tensor.shape[1] > 1 else EVERY]
    return tensor[:, :, rows] if queries else tensor


def dense(scores: Scores) -> Float[Tensor, "batch head query key"]:
    """All scores, differentiable; masked ones are -inf, or MASKED in rows that may see nothing."""
    groups = scores.key.shape[1]
    grouped = scores.query.unflatten(1, (groups, -1)).flatten(2, 3)  # the heads of a group as rows of one product
    out = torch.matmul(grouped, scores.key.mT).view(scores.shape) * scores.scale
    if scores.softcap is not None:
        out = scores.softcap * torch.tanh(out / scores.softcap)
    if scores.bias is not None:
        out = out + scores.bias
    allowed = whole_mask(scores)
    if allowed is not None:
        out = out.masked_fill(~allowed, -torch.inf)
    return out


def softmax(
    scores: Float[Tensor, "*rest key"], sink: Float[Tensor, " head"] | None = None, *, hides: bool = True
) -> Float[Tensor, "*rest key"]:
    """Softmax over keys, at least in float32; a row that may see nothing gets zeros, not NaN.

    With a sink, what it takes is missing from the rows. `hides` says whether any row may see nothing.
    """
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if sink is not None:
        column = sink.to(wide.dtype)[:, None, None].expand(*wide.shape[:-1], 1)
        return torch.softmax(torch.cat([wide, column], dim=-1), dim=-1)[..., :-1]
    weights = torch.softmax(wide, dim=-1)
    if not hides or not wide.shape[-1]:
        return weights
    return weights.masked_fill(torch.isneginf(wide.detach().amax(-1, keepdim=True)), 0.0)


def fused(scores: Scores, value: Float[Tensor, "batch group key value_dim"], dropout: float = 0.0) -> Tensor:
    """softmax(scores) v by torch's own kernel, which never builds the matrix; it supports neither caps nor sinks."""
    heads = scores.shape[1]
    if scores.softcap is not None or scores.sink is not None:
        return context_of(softmax(dense(scores), scores.sink), per_query_head(value, heads), dropout)
    bare = scores.allowed is None and scores.bias is None
    mask = None if bare else whole_mask(scores)
    if scores.bias is not None:
        bias = scores.bias if mask is None else scores.bias.masked_fill(~mask, torch.finfo(scores.bias.dtype).min)
        mask = bias.to(scores.query.dtype)
    # On a CPU torch reads grouped keys in place, bit for bit the same; on a GPU it may build the matrix for them.
    grouped = scores.key.is_cpu and scores.key.shape[1] != heads
    key, value = (each if grouped else per_query_head(each, heads) for each in (scores.key, value))
    return F.scaled_dot_product_attention(
        scores.query, key, value, mask, dropout, bare and scores.causal, scale=scores.scale, enable_gqa=grouped
    )


def context_of(
    weights: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch head key value_dim"],
    dropout: float = 0.0,
) -> Float[Tensor, "batch head query value_dim"]:
    """α v, from the matrix."""
    weights = F.dropout(weights, dropout) if dropout else weights
    return weights.to(value.dtype) @ value
