"""The scores of an attention call, for all rows or for a block of them."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Masked scores are this instead of -inf: exp underflows to an exact 0, and 0 · s stays 0 instead of becoming NaN.
MASKED = -1e30


@dataclass(frozen=True)
class Scores:
    """All that enters softmax(scale · q kᵀ + bias), before it is multiplied out.

    `bias`, `allowed`: broadcastable to [batch head query key]; `causal` lets row i see keys up to i + offset, where
    offset = number of keys − number of queries (a cache of earlier keys). `softcap` c replaces s by c·tanh(s/c), before
    bias and mask, as Gemma-2 does.
    """

    query: Float[Tensor, "batch head query dim"]
    key: Float[Tensor, "batch head key dim"]
    scale: float
    allowed: Bool[Tensor, "..."] | None = None
    bias: Float[Tensor, "..."] | None = None
    causal: bool = False
    softcap: float | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, head, query, _ = self.query.shape
        return batch, head, query, self.key.shape[2]

    @property
    def plain(self) -> bool:
        """True if the scores are nothing but scale · q kᵀ and a mask."""
        return self.bias is None and self.softcap is None

    def visible(self) -> Int[Tensor, "batch 1 query"]:
        """Number of keys that each row may see: the n whose log is the largest entropy the row can have."""
        batch, _, queries, keys = self.shape
        allowed = self.allowed
        if allowed is None and not self.causal:
            return torch.full((batch, 1, queries), keys, device=self.query.device)
        if allowed is None:
            allowed = causal_keys(slice(0, queries), queries, keys, self.query.device)[None, None]
        elif self.causal:
            allowed = allowed & causal_keys(slice(0, queries), queries, keys, self.query.device)
        # A key that no head may see is what padding, causality and windows give; a mask per head is not.
        count = allowed.expand(-1, -1, -1, keys).sum(-1).amax(1, keepdim=True)
        return count.expand(batch, 1, queries)


def causal_keys(rows: slice, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "row key"]:
    """Which keys each of these rows may see if no row may look ahead."""
    last = torch.arange(rows.start, rows.stop, device=device) + (keys - queries)
    return torch.arange(keys, device=device) <= last[:, None]


def part(tensor: Tensor, batch: slice, head: slice, rows: slice) -> Tensor:
    """Cut a tensor that broadcasts to [batch head query key] down to a block."""
    cut = [slice(None) if size == 1 else at for size, at in zip(tensor.shape[:3], (batch, head, rows), strict=True)]
    return tensor[tuple(cut)]


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


def softmax(scores: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest key"]:
    """Softmax over keys, at least in float32; a row that may see nothing gets zeros, not NaN."""
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    weights = torch.softmax(wide, dim=-1)
    return weights.masked_fill(torch.isneginf(wide).all(-1, keepdim=True), 0.0)
