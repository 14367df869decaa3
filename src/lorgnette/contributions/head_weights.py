"""What the `norms` lens needs from a site before it reads any text: the output projection and the next norm."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site
from lorgnette.contributions.norms import FrozenNorm, output_products
from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.classifier.layers import PureNorm
from lorgnette.models.linear import linear_state, version
from lorgnette.models.norms import NormForm, epsilon, norm_form
from lorgnette.models.offloading import parameter
from lorgnette.subject import Subject


@dataclass(frozen=True)
class Projections:
    """The output side of one site. What is made from W_O is at least in float32, and made when it is first used."""

    weight: Float[Tensor, "head dim model"]
    """W_O^h as the model has it."""
    output_bias: Float[Tensor, " model"] | None
    norm: FrozenNorm | None
    """None unless the norm comes after the sum with the residual"""
    norm_bias: Float[Tensor, " model"] | None = None
    second_norm: FrozenNorm | None = None

    @property
    def wide(self) -> torch.dtype:
        return torch.promote_types(self.weight.dtype, torch.float32)

    @cached_property
    def output(self) -> Float[Tensor, "head dim model"]:
        return self.weight.detach().to(self.wide).contiguous()

    @cached_property
    def products(self) -> Float[Tensor, "head dim head_dim"]:
        with torch.no_grad():
            return output_products(self.output)

    @cached_property
    def own_products(self) -> Float[Tensor, "head dim dim"]:
        """M_hh alone."""
        with torch.no_grad():
            wide = self.weight.detach().to(self.wide)
            return wide @ wide.mT

    @cached_property
    def normed_products(self) -> Float[Tensor, "head dim head_dim"] | None:
        with torch.no_grad():
            return None if self.norm is None else output_products(self.norm.directed(self.output))

    # For norms behind a gate: L with L Lᵀ = W_O W_Oᵀ and no more columns than rows, so that ‖y L‖ = ‖y W_O‖.

    @cached_property
    def factor(self) -> Float[Tensor, "width least"]:
        with torch.no_grad():
            return _factor(self.output.flatten(0, 1))

    @cached_property
    def normed_factor(self) -> Float[Tensor, "width least"]:
        assert self.norm is not None
        with torch.no_grad():
            return _factor(self.norm.directed(self.output).flatten(0, 1))

    @cached_property
    def head_factors(self) -> Float[Tensor, "head dim least"]:
        with torch.no_grad():
            return _factor(self.output)

    # The same for the kernels, as sums of two bfloat16 numbers; weights of bfloat16 are one.

    @cached_property
    def output_halves(self) -> tuple[Tensor, ...]:
        flat = self.weight.detach().flatten(0, 1)
        return (flat,) if flat.dtype == torch.bfloat16 else _halves(flat.float())

    @cached_property
    def own_products_halves(self) -> tuple[Tensor, Tensor]:
        return _halves(self.own_products)

    @cached_property
    def products_halves(self) -> tuple[Tensor, Tensor]:
        return self._products_halves(self.weight.detach().float())

    @cached_property
    def normed_products_halves(self) -> tuple[Tensor, Tensor]:
        assert self.norm is not None
        return self._products_halves(self.norm.directed(self.weight.detach().float()))

    def _products_halves(self, output: Float[Tensor, "head dim model"]) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return _halves(output_products(output).flatten(1))

    def project(self, context: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch token model"]:
        """Σ_h y^h W_O^h, without b_O."""
        return context.transpose(1, 2).flatten(2) @ self.output.flatten(0, 1)


class SiteWeights:
    """The projections of every site, made once, and again if a parameter has changed since."""

    def __init__(self, subject: Subject, *, layer_norm: bool, gated: bool = False) -> None:
        """`gated`: whoever asks multiplies contexts by `gate_of`; without, a model with gates is refused."""
        self.subject, self.layer_norm, self.gated = subject, layer_norm, gated
        subject.anatomy.require("output", gated=gated)
        self.sites: dict[Site, AttentionSite] = {site.site: site for site in subject.anatomy.sites}
        self.made: dict[Site, tuple[Any, Projections]] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> "SiteWeights":
        return self  # a copied lens looks at the same model

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()  # a pickled one leaves it behind

    def residual(self, site: Site) -> bool:
        """Whether the layer gives x + attention: only then a token's own term is its residual plus what it reads.

        Not in cross-attention, where the residual is no token that is read; not in sandwich layers (Gemma-2), which
        normalise the heads' output by itself before the sum.
        """
        return site.kind == "self" and self.sites[site].order in ("post", "pre")

    def gate_of(self, call: Call) -> Float[Tensor, "batch head query dim"] | None:
        """What multiplies the call's contexts before W_O, at least in float32; None where nothing does."""
        if self.sites[call.site].gate is None:
            return None
        if call.gate is None:
            raise CaptureError(f"The gate of {call.site} was not captured: its heads' outputs are not known.")
        return call.gate.to(self[call.site].wide)

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
        weight, bias = attention.output_weights(gated=self.gated)
        wide = torch.promote_types(weight.dtype, torch.float32)
        bias = None if bias is None else bias.to(wide)
        norm = second = beta = None
        if self.layer_norm and attention.order == "post" and attention.site.kind == "self":
            norm = frozen(attention.norm, wide)
            second = frozen(attention.second_norm, wide)
        if norm is not None:
            beta = parameter(attention.norm, "bias")
            beta = None if beta is None else beta.detach().to(wide)
        return Projections(weight, bias, norm, beta, second)


def _factor(output: Float[Tensor, "*rest width model"]) -> Float[Tensor, "*rest width least"]:
    """The output itself where it has no more columns than rows, or else the lower triangle of its LQ decomposition."""
    if output.shape[-1] <= output.shape[-2]:
        return output
    return torch.linalg.qr(output.mT, mode="r").R.mT.contiguous()


def _halves(matrix: Float[Tensor, "*shape"]) -> tuple[Tensor, Tensor]:
    high = matrix.to(torch.bfloat16)
    return high, (matrix - high).to(torch.bfloat16)


def frozen(norm: nn.Module | None, dtype: torch.dtype) -> FrozenNorm | None:
    """The norm as a linear map; None for norms that are not known to be linear with fixed statistics."""
    if isinstance(norm, PureNorm):
        return FrozenNorm(None, unbiased=True)
    if norm is None or norm_form(norm) != NormForm(centred=True):
        return None
    weight = parameter(norm, "weight")
    return FrozenNorm(None if weight is None else weight.detach().to(dtype), epsilon(norm))
