"""Where the attention of one loaded model lives: its stacks, their sites in order of calls, and their projections."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attention import Site
from lorgnette.models.linear import linear_weights


@dataclass(frozen=True)
class HeadWeights:
    """The value and output projections of one site, seen per query head.

    f^h(x) = (x W_V^h + b_V^h) W_O^h; the heads' outputs add up to Σ_h y^h W_O^h + b_O. Views of the parameters where
    the layout allows it. Grouped-query heads share their group's W_V.
    """

    value: Float[Tensor, "head model dim"]
    value_bias: Float[Tensor, "head dim"] | None
    output: Float[Tensor, "head dim model"]
    output_bias: Float[Tensor, " model"] | None


@dataclass(frozen=True)
class Projection:
    """A linear map that gives queries, keys or values of all heads; `which` of how many equal parts of a fused map."""

    module: nn.Module
    which: int = 0
    of: int = 1

    def weights(self, groups: int) -> tuple[Float[Tensor, "group model dim"], Float[Tensor, "group dim"] | None]:
        """The map of each group, and its bias."""
        weight, bias = linear_weights(self.module)  # [model, out]
        size = weight.shape[1] // self.of
        part = slice(self.which * size, (self.which + 1) * size)
        own = None if bias is None else bias[part].unflatten(0, (groups, -1))
        return weight[:, part].unflatten(1, (groups, -1)).transpose(0, 1), own


@dataclass(frozen=True)
class AttentionSite:
    """One site with the modules around it."""

    site: Site
    module: nn.Module
    """calls the attention function"""
    layer: nn.Module
    query: Projection
    key: Projection
    value: Projection
    output: nn.Module | None
    """None where the heads are simply concatenated"""
    norm: nn.Module | None
    second_norm: nn.Module | None
    """the norm of the layer's second half, where it ends a post-norm layer"""
    order: str
    """post: norm(x + attention(x)); pre: x + attention(norm(x)); sandwich: x + norm2(attention(norm(x))); none"""
    heads: int
    groups: int
    """number of key/value heads"""
    numbers: tuple[int, ...] = ()
    """the original number (from 0) of each head that is there: heads that were removed leave gaps"""
    total: int = 0
    """how many heads there were before any was removed"""

    def head_weights(self) -> HeadWeights:
        if self.value.of > 1 and self.groups != self.heads:
            raise NotImplementedError("fused projections with grouped heads")
        value, value_bias = self.value.weights(self.groups)
        if self.groups != self.heads:
            value = value.repeat_interleave(self.heads // self.groups, dim=0)
            value_bias = None if value_bias is None else value_bias.repeat_interleave(self.heads // self.groups, dim=0)
        if self.output is None:
            identity = torch.eye(self.heads * value.shape[-1], dtype=value.dtype, device=value.device)
            return HeadWeights(value, value_bias, identity.unflatten(0, (self.heads, -1)), None)
        output, output_bias = linear_weights(self.output)
        return HeadWeights(value, value_bias, output.unflatten(0, (self.heads, -1)), output_bias)


@dataclass(frozen=True)
class Stack:
    """One stack: the module whose forward is one pass, and the sites that a pass calls, in order."""

    name: str
    module: nn.Module
    sites: tuple[AttentionSite, ...]


@dataclass(frozen=True)
class Anatomy:
    """All stacks of a model."""

    family: str
    stacks: tuple[Stack, ...]
    shim: Callable[..., Any] | None = None
    """stands in for the forward of attention modules that ignore the attention interface"""

    @property
    def sites(self) -> tuple[AttentionSite, ...]:
        """Grouped by what results call the stack (encoder, decoder, cross), then by layer."""
        order = {"encoder": 0, "decoder": 1, "cross": 2}
        everything = [site for stack in self.stacks for site in stack.sites]
        return tuple(sorted(everything, key=lambda s: (order.get(s.site.name, 9), s.site.name, s.site.layer)))

    def __getitem__(self, site: Site) -> AttentionSite:
        return next(s for s in self.sites if s.site == site)

    @property
    def causal(self) -> bool:
        """True for a model with nothing but a decoder."""
        return all(stack.name == "decoder" for stack in self.stacks)
