"""Where the attention of one loaded model lives: its stacks, their sites in order of calls, and their projections."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attention import Site


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
class AttentionSite:
    """One site with the modules around it."""

    site: Site
    module: nn.Module
    """calls the attention function"""
    layer: nn.Module
    value: nn.Module
    value_part: tuple[int, int]
    """(which, of how many): fused projections hold query, key and value in turn"""
    output: nn.Module | None
    """None where the heads are simply concatenated"""
    norm: nn.Module | None
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
        weight, bias = linear_weights(self.value)  # [model, out]
        which, parts = self.value_part
        size = weight.shape[1] // parts
        if parts > 1 and self.groups != self.heads:
            raise NotImplementedError("fused projections with grouped heads")
        weight = weight[:, which * size : (which + 1) * size]
        value = weight.unflatten(1, (self.groups, -1)).transpose(0, 1)
        value_bias = None
        if bias is not None:
            value_bias = bias[which * size : (which + 1) * size].unflatten(0, (self.groups, -1))
        if self.groups != self.heads:
            value = value.repeat_interleave(self.heads // self.groups, dim=0)
            value_bias = None if value_bias is None else value_bias.repeat_interleave(self.heads // self.groups, dim=0)
        if self.output is None:
            identity = torch.eye(self.heads * value.shape[-1], dtype=weight.dtype, device=weight.device)
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
    shim: str | None = None

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


def linear_weights(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight as [in, out] and bias of a Linear, or of GPT-2's transposed one."""
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    if type(module).__name__ == "Conv1D":
        return weight, bias if isinstance(bias, Tensor) else None
    return weight.T, bias if isinstance(bias, Tensor) else None
