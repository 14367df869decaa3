"""The entropy of every attention row with a gradient, a block of rows at a time."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending.blocks import blocks
from lorgnette.attending.scores import MASKED, Scores, part, per_query_head
from lorgnette.attending.sweep import Wanted, budget, swept


def swept_entropy(scores: Scores) -> Float[Tensor, "batch head query"]:
    """H_i = −Σ_j α_ij log α_ij in nats, differentiable in query, key and bias; O(block) memory in both directions.

    ∂H_i/∂s_ij = −α_ij (log α_ij + H_i), with α recomputed from the scores in the backward pass. Scores with
    a cap or a sink are not taken.
    """
    if scores.softcap is not None or scores.sink is not None:
        raise ValueError("scores with a cap or a sink have no swept entropy: read it off the matrix")
    return _Entropy.apply(
        scores.query,
        per_query_head(scores.key, scores.shape[1]),
        scores.bias,
        scores.allowed,
        scores.scale,
        scores.causal,
    )


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Float[Tensor, "batch head query dim"],
        key: Float[Tensor, "batch head key dim"],
        bias: Float[Tensor, "..."] | None,
        allowed: Bool[Tensor, "..."] | None,
        scale: float,
        causal: bool,
    ) -> Float[Tensor, "batch head query"]:
        entropy = swept(Scores(query, key, scale, allowed, bias, causal), None, Wanted(entropy=True)).entropy
        assert entropy is not None
        ctx.save_for_backward(query, key, bias, entropy)
        ctx.allowed, ctx.scale, ctx.causal = allowed, scale, causal
        return entropy

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, "batch head query"]) -> tuple[Tensor | None, ...]:
        query, key, bias, entropy = ctx.saved_tensors
        scores = Scores(query, key, ctx.scale, ctx.allowed, bias, ctx.causal)
        wide = entropy.dtype
        q, k = query.to(wide).contiguous(), key.to(wide).contiguous()
        # A row that may see nothing has entropy 0 whatever its scores are.
        grad = grad.to(wide).masked_fill(scores.visible().eq(0), 0.0)
        to_query, to_key = torch.empty_like(q), torch.zeros_like(k)
        to_bias = None if bias is None or not ctx.needs_input_grad[2] else torch.zeros_like(bias, dtype=wide)
        for b, h, r in blocks(scores.shape, budget(q.device), together=False):
            logs = _log_weights(scores, q, k, (b, h, r))
            weights = logs.exp()
            change = logs.add_(entropy[b, h, r, None]).mul_(weights).mul_(-grad[b, h, r, None])  # ∂L/∂s
            to_query[b, h, r] = ctx.scale * (change @ k[b, h])
            to_key[b, h] += ctx.scale * (change.transpose(-1, -2) @ q[b, h, r])
            if to_bias is not None:
                slot = part(to_bias, b, h, r)
                slot += change.sum_to_size(slot.shape)
        grads = (to_query.to(query.dtype), to_key.to(key.dtype), None if to_bias is None else to_bias.to(bias.dtype))
        return (*grads, None, None, None)


def _log_weights(
    scores: Scores,
    query: Float[Tensor, "batch head query dim"],
    key: Float[Tensor, "batch head key dim"],
    block: tuple[slice, slice, slice],
) -> Float[Tensor, "text heads row key"]:
    """log α of one block; about −1e30 where α is zero, so that α log α is zero too."""
    b, h, r = block
    out = query[b, h, r] @ key[b, h].transpose(-1, -2)
    out.mul_(scores.scale)
    if scores.bias is not None:
        out.add_(part(scores.bias, b, h, r).to(out.dtype))
    mask, band = scores.hidden
    if mask is not None:
        out.masked_fill_(~part(mask, b, h, r), MASKED)
    if band:
        out.masked_fill_(~band.keys(r, scores.shape[2], scores.shape[3], out.device), MASKED)
    return torch.log_softmax(out, dim=-1)
