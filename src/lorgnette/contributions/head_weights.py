"""What the `norms` lens needs from a site before it reads any text: the output projection and the next norm."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Site
from lorgnette.contributions.norms import FrozenNorm, output_products
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.classifier.layers import PureNorm
from lorgnette.models.linear import linear_state, version
from lorgnette.models.norms import NormForm, epsilon, norm_form
from lorgnette.models.offloading import parameter
from lorgnette.subject import Subject


@dataclass(frozen=True)
class Projections:
    """The output side of one site, at least in float32."""

    output: Float[Tensor, "head dim model"]
    output_bias: Float[Tensor, " model"] | None
    products: Float[Tensor, "head dim head_dim"]
    norm: FrozenNorm | None
    """None unless the norm comes after the sum with the residual"""
    norm_bias: Float[Tensor, " model"] | None
    normed_products: Float[Tensor, "head dim head_dim"] | None
    second_norm: FrozenNorm | None

    @cached_property
    def halves(self) -> dict[str, tuple[Tensor, ...]]:
        """Output and products as sums of bfloat16 numbers, for the kernels; one is enough for weights of bfloat16."""
        flat = {"output": self.output.flatten(0, 1), "products": self.products.flatten(1)}
        if self.normed_products is not None:
            flat["normed products"] = self.normed_products.flatten(1)
        out: dict[str, tuple[Tensor, ...]] = {}
        for name, matrix in flat.items():
            high = matrix.to(torch.bfloat16)
            low = (matrix - high).to(torch.bfloat16)
            out[name] = (high, low) if name != "output" or bool(low.any()) else (high,)
        out["output twice"] = (torch.cat([out["output"][0]] * 2),)  # for two halves of what is projected, side by side
        return out

    def project(self, context: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch token model"]:
        """Σ_h y^h W_O^h, without b_O."""
        return context.transpose(1, 2).flatten(2) @ self.output.flatten(0, 1)


class SiteWeights:
    """The projections of every site, made once, and again if a parameter has changed since."""

    subject: Subject
    layer_norm: bool

    def __init__(self, subject: Subject, *, layer_norm: bool) -> None:
        self.subject, self.layer_norm = subject, layer_norm
        subject.anatomy.require("output")
        self.sites: dict[Site, AttentionSite] = {site.site: site for site in subject.anatomy.sites}
        self.made: dict[Site, tuple[Any, Projections]] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> "SiteWeights":
        return self  # a copied lens looks at the same model

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a pickled one leaves it behind

    def residual(self, site: Site) -> bool:
        """Whether the layer gives x + attention: only then a token's own term is its residual plus what it reads.

        Not in cross-attention, where the residual is no token that is read; not in sandwich layers (Gemma-2), which
        normalise the heads' output by itself before the sum.
        """
        return site.kind == "self" and self.sites[site].order in ("post", "pre")

    def __getitem__(self, site: Site) -> Projections:
        attention = self.sites[site]
        norm = (
            [] if attention.norm is None else [(id(p), p.data_ptr(), version(p)) for p in attention.norm.parameters()]
        )
        state = (None if attention.output is None else linear_state(attention.output), norm)
        if site not in self.made or self.made[site][0] != state:
            with torch.no_grad():
                self.made[site] = (state, self._make(attention))
        return self.made[site][1]

    def _make(self, attention: AttentionSite) -> Projections:
        output, bias = attention.output_weights()
        wide = torch.promote_types(output.dtype, torch.float32)
        output = output.to(wide).contiguous()
        bias = None if bias is None else bias.to(wide)
        norm = second = normed = beta = None
        if self.layer_norm and attention.order == "post" and attention.site.kind == "self":
            norm = frozen(attention.norm, wide)
            second = frozen(attention.second_norm, wide)
        if norm is not None:
            beta = parameter(attention.norm, "bias")
            beta = None if beta is None else beta.detach().to(wide)
            normed = output_products(norm.directed(output))
        return Projections(output, bias, output_products(output), norm, beta, normed, second)


def frozen(norm: nn.Module | None, dtype: torch.dtype) -> FrozenNorm | None:
    """The norm as a linear map; None for norms that are not known to be linear with fixed statistics."""
    if isinstance(norm, PureNorm):
        return FrozenNorm(None, unbiased=True)
    if norm is None or norm_form(norm) != NormForm(centred=True):
        return None
    weight = parameter(norm, "weight")
    return FrozenNorm(None if weight is None else weight.detach().to(dtype), epsilon(norm))
