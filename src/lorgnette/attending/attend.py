"""The one attention function: what models call, and where every watch is handed the call."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lorgnette.attending.band import BandMask
from lorgnette.attending.call import Call
from lorgnette.attending.scores import Scores, dense, fused, softmax
from lorgnette.attending.taps import ACTIVE, Tap
from lorgnette.errors import CaptureError
from lorgnette.texts.padding import HIDDEN

# fmt: off
HARMLESS = frozenset((
    # Windows and packed texts are in the mask, which transformers makes by our name.
    "sliding_window", "position_ids", "cu_seq_lens_k", "max_length_q", "max_length_k",
    "cu_seqlens", "seq_idx",
    # What is asked of the model, and what a layer passes on to everything inside it.
    "output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "num_items_in_batch",
    "logits_to_keep", "use_cache", "cache_position", "past_key_values", "past_key_value", "layer_idx",
    "position_embeddings", "target_dtype", "deterministic", "hidden_states", "encoder_hidden_states",
    "encoder_attention_mask", "token_type_ids", "is_cross_attention",
))
# fmt: on
"""Keywords that models pass to an attention function and that change nothing of softmax(scores) v."""


def attend(
    module: nn.Module,
    query: Float[Tensor, "batch head query dim"],
    key: Float[Tensor, "batch group key dim"],
    value: Float[Tensor, "batch group key value_dim"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Float[Tensor, " head"] | None = None,
    indices: Tensor | None = None,
    cu_seq_lens_q: Int[Tensor, " boundary"] | None = None,
    **more: object,
) -> tuple[Float[Tensor, "batch query head value_dim"], Float[Tensor, "batch head query key"] | None]:
    """softmax(scaling · q kᵀ + position_bias) v, with the signature of transformers' attention interface.

        >>> q, k, v = torch.rand(3, 1, 4, 5, 8)             # [batch head token dim]
        >>> context, _ = lo.attend(torch.nn.Module(), q, k, v, None, scaling=8**-0.5, is_causal=False)
        >>> context.shape                                   # [batch query head dim]
        torch.Size([1, 5, 4, 8])

    The mask alone says what a row may see: causality, windows and padding. Without a mask every row sees every key, as
    in transformers' eager attention, unless `is_causal=True` is passed. The module's own `is_causal` does not count,
    because many encoders have none. `s_aux` is the score of a learnt sink for each head; `indices` [batch query kept]
    are the only visible keys of a row. `cu_seq_lens_q` are the boundaries of pictures that are packed in one row and do
    not see each other. Unknown keywords are refused, because they may change the result.
    """
    _refuse_unknown(module, more)
    scores, value = scores_of(
        query, key, value, attention_mask, scaling, is_causal=is_causal, bias=position_bias, softcap=softcap
    )
    if s_aux is not None:
        scores = replace(scores, sink=s_aux)
    if indices is not None:
        scores = replace(scores, allowed=_chosen(scores, indices))
    if cu_seq_lens_q is not None and attention_mask is None and query.shape[2] == key.shape[2]:
        scores = replace(scores, allowed=_packed(cu_seq_lens_q, query.shape[2]))
    watches = [watch for watch in ACTIVE.get() if watch.contains(module)]
    if not watches:
        return fused(scores, value, dropout).transpose(1, 2).contiguous(), None
    arrivals = [watch.arrive(module) for watch in watches]
    residual = next((arrival.residual for arrival in arrivals if arrival.residual is not None), None)
    call = Call(arrivals[-1].site, scores, value, dropout, residual, arrivals[-1].gate)
    taps = [tap for watch in watches for tap in watch.taps]
    unwatched = ACTIVE.set(())  # a tap may run the same model: that is a pass of its own
    try:
        _edit(call, taps)
        for tap in taps:
            tap.see(call)
    finally:
        ACTIVE.reset(unwatched)
    return call.context.transpose(1, 2).contiguous(), call.weights if call.has_weights else None


def _refuse_unknown(module: nn.Module, keywords: dict[str, object]) -> None:
    unknown = [name for name, value in keywords.items() if name not in HARMLESS and value is not None]
    if unknown:
        raise CaptureError(
            f"{type(module).__name__} passes {', '.join(map(repr, unknown))} to its attention function, whose "
            "effect on the result is unknown: its attention cannot be captured exactly."
        )


def _chosen(scores: Scores, indices: Tensor) -> Bool[Tensor, "batch heads query key"]:
    """Which of the keys at `indices` each row may see."""
    batch, _, queries, keys = scores.shape
    chosen = torch.zeros(batch, queries, keys, dtype=torch.bool, device=indices.device)
    return scores.visible_keys() & chosen.scatter(-1, indices.long(), True)[:, None]


def _packed(boundaries: Int[Tensor, " boundary"], tokens: int) -> Bool[Tensor, "1 1 query key"] | None:
    """Packed texts: each token sees those between the same two boundaries; None if nothing is hidden."""
    own = torch.bucketize(torch.arange(tokens, device=boundaries.device), boundaries[1:], right=True)
    return None if len(boundaries) < 3 else (own[:, None] == own)[None, None]


def _edit(call: Call, taps: Sequence[Tap]) -> None:
    scorers = [tap for tap in taps if tap.edits("scores")]
    if scorers:
        scores = dense(call.scores)
        for tap in scorers:
            scores = tap.scores(call, scores)
        call.weights = softmax(scores, call.scores.sink)
    for tap in taps:
        if tap.edits("weights"):
            call.weights = tap.weights(call, call.weights)
    for tap in taps:
        if tap.edits("context"):
            call.context = tap.context(call, call.context)


def _is_plain(mask: BandMask) -> bool:
    """Whether torch needs no mask: nothing is hidden, or only later keys, with as many keys as queries."""
    queries, keys = mask.shape[2:]
    return mask.padding is None and mask.band.window is None and (not mask.band or queries in (1, keys))


def scores_of(
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
    """The scores and the values, from the arguments of the attention interface."""
    queries, keys = query.shape[2], key.shape[2]
    causal = bool(is_causal) and mask is None and queries > 1
    if causal and keys > queries:  # a static cache that is still empty: the keys behind the queries do not exist yet
        key, value = key[:, :, :queries], value[:, :, :queries]
        bias = None if bias is None else bias[..., :queries]
    allowed = None
    if isinstance(mask, BandMask) and not (mask.intact and mask.shape[2:] == (queries, key.shape[2])):
        mask = mask.whole
    if isinstance(mask, BandMask) and _is_plain(mask):
        causal, mask = mask.band.causal and queries > 1, None
    if mask is not None:
        mask = mask if mask.shape[-1] == key.shape[2] else mask[..., : key.shape[2]]  # one mask, one object
        if mask.dtype == torch.bool:
            allowed = mask
        else:
            allowed = mask > HIDDEN
            extra = mask.masked_fill(~allowed, 0.0)
            if bool(extra.any()):
                bias = extra if bias is None else bias + extra
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    return Scores(query, key, scale, allowed, bias, causal, softcap), value
