"""Where the attention of one loaded model lives: its stacks, their sites in order of calls, and their projections."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.attending import TEXT_STACKS, Site
from lorgnette.errors import CaptureError
from lorgnette.models.linear import linear_weights, refusal
from lorgnette.models.norms import norm_form, norm_rate

PARTS = {
    "query": "W_Q",
    "key": "W_K",
    "value": "W_V",
    "output": "W_O",
    "order": "the order of residual and norm",
    "mixing": "how tokens are mixed between the layers",
    "mixers": "what mixes tokens beside attention",
}
"""Parts of a site that may be unknown, with their names in messages."""


@dataclass(frozen=True)
class HeadWeights:
    """The value and output projections of one site, seen per query head.

    f^h(x) = (x W_V^h + b_V^h) W_O^h; the heads' outputs add up to Σ_h y^h W_O^h + b_O. Views of the parameters where
    the layout allows it. Grouped-query heads share their group's W_V.
    """

    value: Float[Tensor, "head source dim"]
    value_bias: Float[Tensor, "head dim"] | None
    output: Float[Tensor, "head dim model"]
    output_bias: Float[Tensor, " model"] | None


@dataclass(frozen=True)
class Projection:
    """The linear map for the queries, keys or values of all heads; it may be fused with others.

    Of a fused map these are the part `which` of `of` equal ones, or the outputs named in `columns`.
    """

    module: nn.Module
    which: int = 0
    of: int = 1
    columns: Int[Tensor, " out"] | None = None
    bias: Float[Tensor, " out"] | None = None
    """kept beside the map, in the order of its outputs"""

    def weights(self, groups: int) -> tuple[Float[Tensor, "group model dim"], Float[Tensor, "group dim"] | None]:
        """The map of each group, and its bias."""
        weight, bias = linear_weights(self.module)  # [model, out]
        if self.columns is not None:
            part: Any = self.columns.to(weight.device)
        else:
            size = weight.shape[1] // self.of
            part = slice(self.which * size, (self.which + 1) * size)
        chosen = self.bias if self.bias is not None or bias is None else bias[part]
        own = None if chosen is None else chosen.unflatten(0, (groups, -1))
        return weight[:, part].unflatten(1, (groups, -1)).transpose(0, 1), own


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
}
"""What makes a gate of a linear map's output, by name."""
POSITIVE = ("sigmoid", "softplus")
"""Those that give positive numbers."""


@dataclass(frozen=True)
class Gate:
    """What multiplies the heads' contexts before W_O: g_i = activation(x_i W + b), of the query's token i.

    The output of a head is Σ_j α_ij (g_i ⊙ v_j) W_O: linear in the weights, but what a key gives depends on the query.
    """

    module: nn.Module
    """the linear map, alone or together with others"""
    columns: slice
    """which of its outputs for each head are the gate"""
    activation: str
    bias: Float[Tensor, " head"] | Float[Tensor, " out"] | None
    """kept beside the map: one for each head, or for each output"""
    first: bool
    """whether the map runs before the attention function; else it is given what the attention module is given"""

    def of(self, output: Tensor, batch: int, heads: int) -> Float[Tensor, "batch head query dim"]:
        """g from what the map gave, at least in float32; a gate with one number for each head has dim 1."""
        by_head = output.reshape(batch, -1, heads, output.shape[-1] // heads)[..., self.columns]
        by_head = by_head.to(torch.promote_types(output.dtype, torch.float32))
        if self.bias is not None:
            by_head = by_head + self.bias.to(by_head).reshape(heads, -1)
        return ACTIVATIONS[self.activation](by_head).transpose(1, 2)


@dataclass(frozen=True)
class NormGate:
    """A norm without a mean between the heads and W_O: with the statistics of the pass, a gate γ / s_i of the query."""

    module: nn.Module

    def of(self, context: Float[Tensor, "batch head query dim"]) -> Float[Tensor, "batch head query dim"]:
        """γ / s_i for every channel, at least in float32."""
        joined = context.transpose(1, 2).flatten(2).to(torch.promote_types(context.dtype, torch.float32))
        form = norm_form(self.module)
        assert form is not None
        gain = form.gain(self.module, norm_rate(self.module, joined)).expand_as(joined)
        return gain.unflatten(-1, (context.shape[1], -1)).transpose(1, 2)


GATED = (
    "a gate of the query, or a norm, multiplies the heads' contexts before W_O, so that a key gives each query another "
    "vector; `norms`, `rollout`, `sinks`, `roles`, `frequency`, `composition` and what reads weights allow for this"
)


@dataclass(frozen=True)
class AttentionSite:
    """One site with the modules around it."""

    site: Site
    module: nn.Module
    """calls the attention function"""
    layer: nn.Module
    query: Projection | None
    key: Projection | None
    value: Projection | None
    output: nn.Module | None
    """None where the heads are simply concatenated, or where it is not known"""
    norm: nn.Module | None
    second_norm: nn.Module | None
    """the norm of the layer's second half, where it ends a post-norm layer"""
    order: str
    """post: norm(x + attention(x)); pre: x + attention(norm(x)); sandwich: x + norm2(attention(norm(x))); none: of no
    such kind, or not known"""
    heads: int
    groups: int
    """number of key/value heads"""
    numbers: tuple[int, ...] = ()
    """the original number (from 0) of each head that is there: heads that were removed leave gaps"""
    total: int = 0
    """how many heads there were before any was removed"""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """which of PARTS could not be proved, and why"""
    gate: Gate | NormGate | None = None
    """multiplies the contexts before W_O"""

    @property
    def maps(self) -> dict[str, nn.Module]:
        """The modules of W_Q, W_K, W_V and W_O, as far as there are any."""
        read = {"query": self.query, "key": self.key, "value": self.value}
        found = {part: projection.module for part, projection in read.items() if projection is not None}
        return found if self.output is None else {**found, "output": self.output}

    def lack(self, part: str, *, gated: bool = False) -> str | None:
        """Why a part of this site is unknown (it could not be proved, or its weights cannot be read), or None.

        W_O behind a gate counts as unknown unless `gated`: whoever asks multiplies by the gate.
        """
        if part == "output" and self.gate is not None and not gated:
            return GATED
        module = self.maps.get(part)
        if part in self.unknown or module is None:
            return self.unknown.get(part)
        reason = refusal(module)
        return None if reason is None else f"the weights of its {type(module).__name__} cannot be read, {reason}"

    def require(self, *parts: str, gated: bool = False) -> None:
        """Raise a one-line error if this part of the site is unknown."""
        for part in parts:
            reason = self.lack(part, gated=gated)
            if reason == GATED:
                raise CaptureError(f"What a key gives to the output of {self.site} is not one vector: {reason}.")
            if reason is not None:
                raise CaptureError(f"{PARTS[part]} of {self.site} is not known: {reason}.")

    def output_weights(
        self, *, gated: bool = False
    ) -> tuple[Float[Tensor, "head dim model"], Float[Tensor, " model"] | None]:
        """W_O of each head, and b_O; `gated`: whoever asks multiplies by the gate where there is one."""
        self.require("output", gated=gated)
        if self.output is None:
            value = self._value()[0]
            identity = torch.eye(self.heads * value.shape[-1], dtype=value.dtype, device=value.device)
            return identity.unflatten(0, (self.heads, -1)), None
        weight, bias = linear_weights(self.output)
        return weight.unflatten(0, (self.heads, -1)), bias

    def head_weights(self, *, gated: bool = False) -> HeadWeights:
        value, value_bias = self._value()
        if self.groups != self.heads:
            value = value.repeat_interleave(self.heads // self.groups, dim=0)
            value_bias = None if value_bias is None else value_bias.repeat_interleave(self.heads // self.groups, dim=0)
        return HeadWeights(value, value_bias, *self.output_weights(gated=gated))

    @property
    def gate_scales(self) -> bool:
        """Whether the gate is one positive number for each head: W_V W_O behind it is the same but for its size."""
        if not isinstance(self.gate, Gate) or self.gate.activation not in POSITIVE:
            return False
        return linear_weights(self.gate.module)[0].shape[1] == self.heads

    @property
    def reads_latent(self) -> bool:
        """Whether W_V is given something else than a state as wide as the residual stream (latent attention)."""
        if self.site.kind != "self" or self.output is None or self.lack("value") or self.lack("output", gated=True):
            return False
        return self._value()[0].shape[1] != self.output_weights(gated=True)[0].shape[-1]

    def _value(self) -> tuple[Float[Tensor, "group model dim"], Float[Tensor, "group dim"] | None]:
        self.require("value")
        assert self.value is not None
        if self.value.of > 1 and self.groups != self.heads:
            raise NotImplementedError("fused projections of equal parts with grouped heads")
        return self.value.weights(self.groups)


@dataclass(frozen=True)
class LayerStack:
    """One stack: the module whose forward is one pass, and the sites that a pass calls, in order."""

    name: str
    module: nn.Module
    sites: tuple[AttentionSite, ...]
    total: int | None = None
    """how many layers it has, where some of them have no attention; None if all have"""


@dataclass(frozen=True)
class Anatomy:
    """All stacks of a model; `sees` is what it took beside ids when it was found (pixel_values …)."""

    family: str
    stacks: tuple[LayerStack, ...]
    shim: Callable[..., object] | None = None
    """stands in for the forward of attention modules that ignore the attention interface"""
    sees: tuple[str, ...] = ()
    stand_ins: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    """the same for modules of these classes, where the stacks were found by running the model"""
    mixers: tuple[nn.Module, ...] = ()
    """what mixes tokens beside attention, if anything does: recurrences, convolutions, linear attention"""

    @property
    def sites(self) -> tuple[AttentionSite, ...]:
        """Grouped by what results call the stack (vision, encoder, decoder, cross), then by layer."""
        order = {"vision": -1, "encoder": 0, "decoder": 1, "cross": 2}
        everything = [site for stack in self.stacks for site in stack.sites]
        return tuple(sorted(everything, key=lambda s: (order.get(s.site.name, 9), s.site.name, s.site.layer)))

    def __getitem__(self, site: Site) -> AttentionSite:
        return next(s for s in self.sites if s.site == site)

    def knows(self, *parts: str, gated: bool = False) -> bool:
        """Whether these parts are known at every site that texts pass through."""
        sites = [site for site in self.sites if site.site.of_texts]
        return all(site.lack(part, gated=gated) is None for site in sites for part in parts)

    def require(self, *parts: str, gated: bool = False) -> None:
        """Raise a one-line error unless this part is known at every site that texts pass through."""
        for site in self.sites:
            if site.site.of_texts:
                site.require(*parts, gated=gated)

    @property
    def causal(self) -> bool:
        """True for a model whose texts pass through nothing but a decoder."""
        return {stack.name for stack in self.stacks if stack.name in TEXT_STACKS} == {"decoder"}
