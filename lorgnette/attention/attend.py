"""The one attention function: what models call, and where every watch is handed the call."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attention.call import Call
from lorgnette.attention.scores import Scores, dense, fused, softmax
from lorgnette.attention.taps import ACTIVE, Tap


def attend(
    module: nn.Module,
    query: Float[Tensor, "batch head query dim"],
    key: Float[Tensor, "batch group key dim"],
    value: Float[Tensor, "batch group key value_dim"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Float[Tensor, "batch query head value_dim"], Float[Tensor, "batch head query key"] | None]:
    """softmax(scaling · q kᵀ + position_bias) v, with the signature of transformers' attention interface.

    Windows and padding come in the mask; a causal model that passes no mask is masked here.
    """
    scores, value = _scores(
        module, query, key, value, attention_mask, scaling, is_causal=is_causal, bias=position_bias, softcap=softcap
    )
    watches = [watch for watch in ACTIVE.get() if watch.contains(module)]
    if not watches:
        return fused(scores, value, dropout).transpose(1, 2).contiguous(), None
    arrivals = [watch.arrive(module) for watch in watches]
    residual = next((arrival.residual for arrival in arrivals if arrival.residual is not None), None)
    call = Call(arrivals[-1].site, scores, value, dropout, residual)
    taps = [tap for watch in watches for tap in watch.taps]
    _edit(call, taps)
    for tap in taps:
        tap.see(call)
    return call.context.transpose(1, 2).contiguous(), call.weights if call.has_weights else None


def _edit(call: Call, taps: Sequence[Tap]) -> None:
    scorers = [tap for tap in taps if tap.edits("scores")]
    if scorers:
        scores = dense(call.scores)
        for tap in scorers:
            scores = tap.scores(call, scores)
        call.weights = softmax(scores)
    for tap in taps:
        if tap.edits("weights"):
            call.weights = tap.weights(call, call.weights)
    for tap in taps:
        if tap.edits("context"):
            call.context = tap.context(call, call.context)


def _scores(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    *,
    is_causal: bool | None,
    bias: Tensor | None,
    softcap: float | None,
) -> tuple[Scores, Tensor]:
    """Turn the interface's arguments into scores and values with one key and value head per query head."""
    queries, keys = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and mask is None and queries > 1
    if causal and keys > queries:  # an empty static cache: what lies beyond the queries is not there yet
        key, value = key[:, :, :queries], value[:, :, :queries]
        bias = None if bias is None else bias[..., :queries]
    if key.shape[1] != query.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    allowed = None
    if mask is not None:
        mask = mask[..., : key.shape[2]]
        if mask.dtype == torch.bool:
            allowed = mask
        else:
            allowed = mask > torch.finfo(mask.dtype).min / 2
            extra = mask.masked_fill(~allowed, 0.0)
            if bool(extra.any()):
                bias = extra if bias is None else bias + extra
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    return Scores(query, key, scale, allowed, bias, causal, softcap), value
