"""The one attention function, and what can be seen of a call of it.

`attend` is what models call. Whoever watches (`lorgnette.tapped`) is handed each call as a `Call`, which computes only
what is asked of it: the n×n weights exist only if somebody wants them.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lorgnette.maths.scores import Scores, causal_keys, dense, softmax
from lorgnette.maths.sweep import Measured, Wanted, from_matrix, swept


@dataclass(frozen=True, order=True)
class Site:
    """A place in a model where attention happens: which stack, self or cross, which layer (from 0)."""

    stack: str
    kind: str
    layer: int

    @property
    def name(self) -> str:
        """The stack's name in results: encoder, decoder, or cross for the decoder's look at the encoder."""
        return "cross" if self.kind == "cross" else self.stack

    def __str__(self) -> str:
        return f"{self.name} layer {self.layer + 1}"


class Call:
    """One attention call of one forward pass: α = softmax(scale · q kᵀ + bias) over the keys a row may see, y = α v.

    Query, key and value are [batch head token dim] with grouped keys and values already repeated for their query heads,
    and rotary positions already applied. Every statistic is exact. With the matrix at hand (somebody asked for
    `weights`, or a gradient is wanted) it is read off the matrix; otherwise it is swept over blocks of rows.
    """

    site: Site | None = None
    residual_state: Float[Tensor, "batch query model"] | None = None

    def __init__(self, scores: Scores, value: Float[Tensor, "batch head key value_dim"], dropout: float = 0.0) -> None:
        self.scores = scores
        self.value = value
        self.dropout = dropout
        self._weights: Tensor | None = None
        self._context: Tensor | None = None

    @property
    def query(self) -> Float[Tensor, "batch head query dim"]:
        return self.scores.query

    @property
    def key(self) -> Float[Tensor, "batch head key dim"]:
        return self.scores.key

    @property
    def residual(self) -> Float[Tensor, "batch query model"]:
        """The state that is added to the heads' output; kept only if a tap sets `wants_residual`."""
        if self.residual_state is None:
            raise RuntimeError("call.residual was not kept: set wants_residual = True on the tap or lens")
        return self.residual_state

    @property
    def differentiable(self) -> bool:
        tensors = (self.query, self.key, self.value, self.scores.bias)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    @property
    def weights(self) -> Float[Tensor, "batch head query key"]:
        """α, built on first use; rows of padded queries that may see nothing are zero."""
        if self._weights is None:
            self._weights = softmax(dense(self.scores))
        return self._weights

    @property
    def context(self) -> Float[Tensor, "batch head query value_dim"]:
        """Σ_j α_ij v_j per head, before the output projection."""
        if self._context is None:
            self._context = self._mix() if self._weights is not None else self._fused()
        return self._context

    @cached_property
    def seen_keys(self) -> Int[Tensor, "batch 1 query"]:
        """Number of keys each row may see."""
        return self.scores.visible()

    def measure(self, wanted: Wanted) -> Measured:
        """Several statistics of all rows from one sweep; the context comes along if nobody has computed it yet."""
        if self._weights is not None or self.differentiable:
            return from_matrix(self.weights, wanted)
        # A context of lower precision is left to the fused kernel, so that the model's output is what it would be.
        along = self._context is None and self.dropout == 0.0 and self.query.dtype in (torch.float32, torch.float64)
        if along and not wanted.context:
            wanted = Wanted(**{**wanted.__dict__, "context": True})
        measured = swept(self.scores, self.value, wanted)
        if along:
            self._context = measured.context
        return measured

    def average(
        self, features: Float[Tensor, "batch key feature"] | Float[Tensor, "batch head key feature"]
    ) -> Float[Tensor, "batch head query feature"]:
        """Σ_j α_ij φ_j for any per-key features φ: mass on a category, mean attended position, …"""
        return self.measure(Wanted(features=features))["average"]

    def entropy(self) -> Float[Tensor, "batch head query"]:
        """−Σ_j α_ij log α_ij in nats."""
        return self.measure(Wanted(entropy=True))["entropy"]

    def at(self, offset: int) -> Float[Tensor, "batch head query"]:
        """α_{i,i+offset}: mass on self (0), previous (−1), next (+1); zero outside and where that key is masked."""
        return self.measure(Wanted(offsets=(offset,)))["at"][..., 0]

    def peak(self, among: Bool[Tensor, "batch key"] | None = None) -> Float[Tensor, "batch head query"]:
        """max_j α_ij, over all keys or among some (not renormalised)."""
        if among is None:
            return self.measure(Wanted(peak=True))["peak"]
        return self.measure(Wanted(among=among))["peak_among"]

    def received(self, queries: Float[Tensor, "batch query"]) -> Float[Tensor, "batch head key"]:
        """Σ_i w_i α_ij: how much each key is read, with a weight w_i for each query."""
        return self.measure(Wanted(received=queries))["received"]

    def rows(self, index: Int[Tensor, " row"] | Sequence[int]) -> Float[Tensor, "batch head row key"]:
        """The weights of some query rows only, differentiable, without building the others."""
        if self._weights is not None:
            return self._weights[:, :, index]
        s = self.scores
        allowed = s.allowed[:, :, index] if s.allowed is not None and s.allowed.shape[2] > 1 else s.allowed
        if s.causal:
            look_back = causal_keys(slice(0, s.shape[2]), s.shape[2], s.shape[3], s.query.device)[index]
            allowed = look_back if allowed is None else allowed & look_back
        bias = s.bias[:, :, index] if s.bias is not None and s.bias.shape[2] > 1 else s.bias
        return softmax(dense(Scores(s.query[:, :, index], s.key, s.scale, allowed, bias, False, s.softcap)))

    def _mix(self) -> Tensor:
        weights = F.dropout(self.weights, self.dropout) if self.dropout else self.weights
        return weights.to(self.value.dtype) @ self.value

    def _fused(self) -> Tensor:
        s = self.scores
        if s.softcap is not None:
            return self._mix()
        mask = s.allowed
        if s.bias is not None:
            mask = s.bias if mask is None else s.bias.masked_fill(~mask, torch.finfo(s.bias.dtype).min)
            if s.causal:
                ahead = ~causal_keys(slice(0, s.shape[2]), s.shape[2], s.shape[3], s.query.device)
                mask = mask.masked_fill(ahead, torch.finfo(mask.dtype).min)
            mask = mask.to(s.query.dtype)
        causal = s.causal and s.bias is None
        return F.scaled_dot_product_attention(
            s.query, s.key, self.value, attn_mask=mask, dropout_p=self.dropout, is_causal=causal, scale=s.scale
        )


class Tap:
    """Sees or edits every call of a tapped model. Override what you need.

    `scores` and `weights` edits build the matrix; `context` edits do not. Edits of several taps apply in order.
    """

    wants_residual = False

    def open(self, stack: str) -> None:
        """A stack's forward pass begins."""

    def close(self, stack: str) -> None:
        """A stack's forward pass is over, all its sites seen."""

    def scores(
        self, call: Call, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        """Edit the scores before the softmax (masked ones are -inf)."""
        return scores

    def weights(
        self, call: Call, weights: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        """Edit the weights after the softmax."""
        return weights

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        """Edit the heads' output before the output projection."""
        return context

    def see(self, call: Call) -> None:
        """Look at the call; edits are in it already."""

    def edits(self, what: str) -> bool:
        """Whether this tap overrides `scores`, `weights` or `context`."""
        return getattr(type(self), what) is not getattr(Tap, what)


class Watch(Protocol):
    """What follows a tapped model's passes: knows its modules, names the site of each call."""

    @property
    def taps(self) -> Sequence[Tap]: ...

    def contains(self, module: nn.Module) -> bool: ...

    def arrive(self, module: nn.Module, call: Call) -> None: ...


ACTIVE: ContextVar[tuple[Watch, ...]] = ContextVar("lorgnette_watches", default=())
"""The watches of this thread (or task); a model tapped elsewhere is not seen from here."""


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
    call = Call(scores, value, dropout)
    watches = [watch for watch in ACTIVE.get() if watch.contains(module)]
    for watch in watches:
        watch.arrive(module, call)
    taps = [tap for watch in watches for tap in watch.taps]
    _edit(call, taps)
    for tap in taps:
        tap.see(call)
    return call.context.transpose(1, 2).contiguous(), call._weights


def _edit(call: Call, taps: Sequence[Tap]) -> None:
    scorers = [tap for tap in taps if tap.edits("scores")]
    if scorers:
        scores = dense(call.scores)
        for tap in scorers:
            scores = tap.scores(call, scores)
        call._weights = softmax(scores)
    for tap in taps:
        if tap.edits("weights"):
            call._weights = tap.weights(call, call.weights)
    for tap in taps:
        if tap.edits("context"):
            call._context = tap.context(call, call.context)


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
