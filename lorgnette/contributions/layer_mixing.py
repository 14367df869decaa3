"""How one layer mixes its tokens, from weights and from norms: the matrices that a rollout multiplies."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.contributions.head_weights import Projections, SiteWeights
from lorgnette.contributions.norms import all_heads_norms, gram
from lorgnette.contributions.rollout import half_residual, row_shares

BLOCK = 2**22
"""Floats of weights that are built at a time."""


def rollable(sites: Sequence[Site]) -> set[Site]:
    """Self-attention whose stack reads nothing but its own tokens."""
    fed = {site.stack for site in sites if site.kind == "cross" and site.stack != "pooler"}
    return {site for site in sites if site.kind == "self" and site.stack not in fed}


def mixing_of(call: Call, projections: SiteWeights | None) -> dict[str, Float[Tensor, "batch query key"]]:
    """M of one layer from weights, and from norms if the layer's terms are known; a block of rows at a time."""
    batch, heads, queries, keys = call.scores.shape
    texts = max(1, BLOCK // (heads * queries * keys))
    rows = max(1, min(queries, BLOCK // (heads * keys)))
    wide = torch.promote_types(call.query.dtype, torch.float32)
    mean = torch.empty(batch, queries, keys, dtype=wide, device=call.query.device)
    terms = _Terms.of(call, projections)
    norms = None if terms is None else torch.empty_like(mean)
    own = torch.empty(batch, heads, queries, dtype=wide, device=call.query.device)
    for b in (slice(at, at + texts) for at in range(0, batch, texts)):
        for r in (slice(at, min(at + rows, queries)) for at in range(0, queries, rows)):
            weights = call.block(b, r).to(wide)
            mean[b, r] = weights.mean(1)
            own[b, :, r] = weights[..., r].diagonal(dim1=-2, dim2=-1)
            if norms is not None and terms is not None:
                norms[b, r] = all_heads_norms(weights, terms.gram[b])
    out = {"weights": half_residual(mean[:, None])}
    if norms is not None and terms is not None:
        norms.diagonal(dim1=-2, dim2=-1).copy_(terms.own(own))
        out["norms"] = row_shares(norms)
    return out


class _Terms:
    """The parts of a layer's vectors that come from each token, up to a factor that is the same for a whole row.

    (LayerNorm divides row i by one number, which `row_shares` divides out again.)
    """

    def __init__(self, call: Call, around: Projections, dtype: torch.dtype) -> None:
        self.value, self.residual, self.around = call.value.to(dtype), call.residual.to(dtype), around
        products = around.products if around.norm is None else around.normed_products
        assert products is not None
        self.gram = gram(self.value, products)

    @classmethod
    def of(cls, call: Call, projections: SiteWeights | None) -> "_Terms | None":
        """None where the layer is not x + attention, or is followed by a norm that is not known."""
        if projections is None or not projections.residual(call.site):
            return None
        around = projections[call.site]
        if around.norm is None and projections.sites[call.site].order != "pre":
            return None
        return cls(call, around, around.output.dtype)

    def own(self, weights: Float[Tensor, "batch head query"]) -> Float[Tensor, "batch query"]:
        """‖Σ_h α_ii f^h(x_i) + x_i‖, behind the norm where one follows."""
        vector = self.around.project(weights[..., None] * self.value) + self.residual
        return (vector if self.around.norm is None else self.around.norm.directed(vector)).norm(dim=-1)
