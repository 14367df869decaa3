"""The scores of an attention call, for all rows or for a block of them, and what is mixed by them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Masked scores are this instead of -inf: exp underflows to an exact 0, and 0 · s stays 0 instead of becoming NaN.
MASKED = -1e30

EVERY = slice(None)
Rows = slice | Sequence[int] | Int[Tensor, " row"]
"""Some query rows: a slice, or their positions."""


@dataclass(frozen=True)
class Scores:
    """All that enters softmax(scale · q kᵀ + bias), before it is multiplied out.

    `bias`, `allowed`: broadcastable to [batch head query key]; `causal` lets row i see keys up to i + offset, where
    offset = number of keys − number of queries (a cache of earlier keys). `softcap` c replaces s by c·tanh(s/c), before
    bias and mask, as Gemma-2 does. `sink` is a score for each head, the same for every row, that takes part in the
    softmax and belongs to no key (gpt-oss): the weights of a row add up to less than one, the rest is the sink's.
    """

    query: Float[Tensor, "batch head query dim"]
    key: Float[Tensor, "batch head key dim"]
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
    def plain(self) -> bool:
        """True if the scores are nothing but scale · q kᵀ and a mask."""
        return self.bias is None and self.softcap is None

    def visible(self) -> Int[Tensor, "batch 1 query"]:
        """Number of keys that each row may see: the n whose log is the largest entropy the row can have.

        A sink counts as one more, in rows that may see anything.
        """
        count = self._visible()
        return count if self.sink is None else count + (count > 0).to(count.dtype)

    def _visible(self) -> Int[Tensor, "batch 1 query"]:
        batch, _, queries, keys = self.shape
        allowed = self.allowed
        if allowed is None and not self.causal:
            return torch.full((batch, 1, queries), keys, device=self.query.device)
        if allowed is None:
            last = torch.arange(1 + keys - queries, 1 + keys, device=self.query.device)
            return last.clamp(0, keys).expand(batch, 1, queries)
        if self.causal:
            allowed = allowed & causal_keys(slice(0, queries), queries, keys, self.query.device)
        # A key that no head may see is what padding, causality and windows give; a mask per head is not.
        count = allowed.expand(-1, -1, -1, keys).sum(-1).amax(1, keepdim=True)
        return count.expand(batch, 1, queries)

    def visible_keys(self) -> Bool[Tensor, "batch heads query key"]:
        """Which keys each row may see; `heads` is 1 where all heads may see the same."""
        batch, _, queries, keys = self.shape
        allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.query.device)
        if self.allowed is not None:
            allowed = self.allowed
        if self.causal:
            allowed = allowed & causal_keys(slice(0, queries), queries, keys, self.query.device)
        return allowed.expand(batch, -1, queries, keys)

    def block(self, texts: slice = EVERY, rows: Rows = EVERY, heads: slice = EVERY) -> "Scores":
        """The scores of some rows of some texts and heads; what causality forbids is in the mask now."""
        queries, keys = self.shape[2:]
        rows = slice(*rows.indices(queries)) if isinstance(rows, slice) else rows
        allowed = None if self.allowed is None else part(self.allowed, texts, heads, rows)
        if self.causal:
            if isinstance(rows, slice):
                behind = causal_keys(rows, queries, keys, self.query.device)
            else:
                behind = causal_keys(slice(0, queries), queries, keys, self.query.device)[rows]
            allowed = behind[None, None] if allowed is None else allowed & behind
        bias = None if self.bias is None else part(self.bias, texts, heads, rows)
        query, key = self.query[texts, heads][:, :, rows], self.key[texts, heads]
        sink = None if self.sink is None else self.sink[heads]
        return Scores(query, key, self.scale, allowed, bias, False, self.softcap, sink)


def causal_keys(rows: slice, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "row key"]:
    """Which keys each of these rows may see if no row may look ahead."""
    last = torch.arange(rows.start, rows.stop, device=device) + (keys - queries)
    return torch.arange(keys, device=device) <= last[:, None]


def part(tensor: Tensor, batch: slice, head: slice, rows: Rows) -> Tensor:
    """Cut a tensor that broadcasts to [batch head query key] down to a block."""
    texts, queries = len(tensor) > 1, tensor.shape[2] > 1
    tensor = tensor[batch if texts else EVERY, head if tensor.shape[1] > 1 else EVERY]
    return tensor[:, :, rows] if queries else tensor


def dense(scores: Scores) -> Float[Tensor, "batch head query key"]:
    """All scores, differentiable; masked ones are -inf, or MASKED in rows that may see nothing."""
    out = torch.matmul(scores.query, scores.key.transpose(-1, -2)) * scores.scale
    if scores.softcap is not None:
        out = scores.softcap * torch.tanh(out / scores.softcap)
    if scores.bias is not None:
        out = out + scores.bias
    allowed = scores.allowed
    if scores.causal:
        rows = causal_keys(slice(0, out.shape[2]), out.shape[2], out.shape[3], out.device)
        allowed = rows if allowed is None else allowed & rows
    if allowed is not None:
        out = out.masked_fill(~allowed, -torch.inf)
    return out


def softmax(
    scores: Float[Tensor, "*rest key"], sink: Float[Tensor, " head"] | None = None
) -> Float[Tensor, "*rest key"]:
    """Softmax over keys, at least in float32; a row that may see nothing gets zeros, not NaN.

    With a sink, what it takes is missing from the rows.
    """
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if sink is not None:
        column = sink.to(wide.dtype)[:, None, None].expand(*wide.shape[:-1], 1)
        return torch.softmax(torch.cat([wide, column], dim=-1), dim=-1)[..., :-1]
    weights = torch.softmax(wide, dim=-1)
    return weights.masked_fill(torch.isneginf(wide).all(-1, keepdim=True), 0.0)


def fused(scores: Scores, value: Float[Tensor, "batch head key value_dim"], dropout: float = 0.0) -> Tensor:
    """softmax(scores) v by torch's own kernel, which never builds the matrix; caps and sinks it does not take."""
    if scores.softcap is not None or scores.sink is not None:
        return mixed(softmax(dense(scores), scores.sink), value, dropout)
    mask = scores.allowed
    if scores.bias is not None:
        mask = scores.bias if mask is None else scores.bias.masked_fill(~mask, torch.finfo(scores.bias.dtype).min)
        if scores.causal:
            ahead = ~causal_keys(slice(0, scores.shape[2]), scores.shape[2], scores.shape[3], scores.query.device)
            mask = mask.masked_fill(ahead, torch.finfo(mask.dtype).min)
        mask = mask.to(scores.query.dtype)
    causal = scores.causal and scores.bias is None
    return F.scaled_dot_product_attention(
        scores.query, scores.key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scores.scale
    )


def mixed(
    weights: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch head key value_dim"],
    dropout: float = 0.0,
) -> Float[Tensor, "batch head query value_dim"]:
    """α v, from the matrix."""
    weights = F.dropout(weights, dropout) if dropout else weights
    return weights.to(value.dtype) @ value
