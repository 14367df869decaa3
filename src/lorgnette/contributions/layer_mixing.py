"""How one layer mixes its tokens, from weights and from norms: the matrices that a rollout multiplies."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.contributions.gated import GatedNorms
from lorgnette.contributions.head_weights import Projections, SiteWeights
from lorgnette.contributions.layer import own_norms_of, pair_norms_of
from lorgnette.contributions.rollout import half_residual, row_shares


def rollable(sites: Sequence[Site]) -> set[Site]:
    """Self-attention whose stack reads nothing but its own tokens."""
    fed = {site.stack for site in sites if site.kind == "cross" and site.stack != "pooler"}
    return {site for site in sites if site.kind == "self" and site.stack not in fed}


def mixing_of(call: Call, projections: SiteWeights | None) -> dict[str, Float[Tensor, "batch query key"]]:
    """M of one layer from weights, and from norms if the layer's terms are known; a block of rows at a time."""
    mixing = LayerMixing(call, projections)
    with torch.no_grad():
        call.measure(Wanted(block=mixing))
    return mixing.matrices()


Watched = Callable[[Tensor, slice, slice], Float[Tensor, "text row key"]]


class LayerMixing:
    """Watches the rows of one call: the mean of the heads, and the norms of what comes from each token.

    Norms are up to a factor that is the same for a whole row: LayerNorm divides row i by one number, which `row_shares`
    divides out again.
    """

    def __init__(self, call: Call, projections: SiteWeights | None) -> None:
        batch, heads, queries, keys = call.scores.shape
        wide = torch.promote_types(call.query.dtype, torch.float32)
        new = partial(torch.empty, dtype=wide, device=call.query.device)
        self.mean, self.own, self.norms = new(batch, queries, keys), new(batch, heads, queries), None
        self.call, self.maps = call, _maps(call, projections)
        self.gate: Tensor | None = None
        self.pair_norms: Watched
        if self.maps is not None:
            self.norms = torch.empty_like(self.mean)
            assert projections is not None
            self.gate = projections.gate_of(call)
            normed = self.maps.norm is not None
            if self.gate is None:
                self.pair_norms = pair_norms_of(call, self.maps, normed=normed)
            else:
                self.pair_norms = partial(GatedNorms.of(call, self.maps, self.gate).all, normed=normed)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        torch.mean(weights, 1, out=self.mean[texts, rows])
        self.own[texts, :, rows] = weights.diagonal(rows.start, -2, -1)
        if self.norms is not None:
            self.norms[texts, rows] = self.pair_norms(weights, texts, rows)

    def matrices(self) -> dict[str, Float[Tensor, "batch query key"]]:
        out = {"weights": half_residual(self.mean[:, None])}
        if self.norms is not None:
            self.norms.diagonal(dim1=-2, dim2=-1).copy_(self._own_norms())
            out["norms"] = row_shares(self.norms)
        return out

    def _own_norms(self) -> Float[Tensor, "batch query"]:
        """‖Σ_h α_ii f^h(x_i) + x_i‖, behind the norm where one follows."""
        assert self.maps is not None
        maps, wide = self.maps, self.maps.wide

        def with_x() -> Float[Tensor, "batch query model"]:
            own = self.own[..., None] * self.call.value.to(wide)
            own = own if self.gate is None else own * self.gate
            return maps.project(own) + self.call.residual.to(wide)

        return own_norms_of(self.call, maps, with_x)


def _maps(call: Call, projections: SiteWeights | None) -> Projections | None:
    """None where the layer is not x + attention, or an unknown norm follows."""
    if projections is None or not projections.residual(call.site):
        return None
    maps = projections[call.site]
    return None if maps.norm is None and projections.sites[call.site].order != "pre" else maps
