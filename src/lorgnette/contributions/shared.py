"""Quantities of one call that several lenses use: the first lens computes them, the others share them."""

from collections.abc import Callable
from types import ModuleType

from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.attending.sweep import Wanted
from lorgnette.contributions.head_weights import Projections
from lorgnette.contributions.norms import all_heads_norms, gram, head_norms
from lorgnette.kernels import kernels


def norm_kernels(call: Call) -> ModuleType | None:
    """The GPU kernels for norms, if they support this call."""
    if call.kernels(Wanted()) is None:
        return None
    module = kernels("norms")
    return None if module is None or module.refusal(call.scores, call.grouped_value) is not None else module


def transformed_norms_of(call: Call, maps: Projections) -> Float[Tensor, "batch head key"]:
    """‖f^h(x_j)‖."""
    if (module := norm_kernels(call)) is not None:
        return call.once("transformed norms", lambda: module.head_norms(call.grouped_value, maps))
    return call.once("transformed norms", lambda: head_norms(call.value.to(maps.wide), maps.products))


def gram_of(call: Call, maps: Projections, *, normed: bool = False) -> Float[Tensor, "batch head head key"]:
    """Dot products of the heads' transformed vectors of each token, before the norm or behind it."""
    name, module = "gram behind the norm" if normed else "gram", norm_kernels(call)
    if module is not None:
        return call.once(name, lambda: module.gram(call.grouped_value, maps, normed=normed))
    products = maps.normed_products if normed else maps.products
    assert products is not None
    return call.once(name, lambda: gram(call.value.to(maps.wide), products))


def own_norms_of(
    call: Call, maps: Projections, with_x: Callable[[], Float[Tensor, "batch query model"]]
) -> Float[Tensor, "batch query"]:
    """‖Σ_h α_ii f^h(x_i) + x_i‖ from that sum, behind the norm where one follows, but for its division by s."""
    norm = maps.norm
    if norm is None:
        return call.once("own norms", lambda: with_x().norm(dim=-1))
    return call.once("own norms behind the norm", lambda: norm.directed(with_x()).norm(dim=-1))


class PairNorms:
    """‖Σ_h α^h_ij f^h(x_j)‖ of a block of pairs, cached for the next request for the same block."""

    def __init__(self, coefficients: Float[Tensor, "batch head head key"]) -> None:
        self.coefficients = coefficients
        self.block: tuple[slice, slice] | None = None
        self.norms = coefficients

    def __call__(
        self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice
    ) -> Float[Tensor, "text row key"]:
        if self.block != (texts, rows):
            self.block, self.norms = (texts, rows), all_heads_norms(weights, self.coefficients[texts])
        return self.norms


def pair_norms_of(call: Call, maps: Projections, *, normed: bool = False) -> PairNorms:
    """The norms of all heads' terms of this call, block by block."""
    name = "pair norms behind the norm" if normed else "pair norms"
    return call.once(name, lambda: PairNorms(gram_of(call, maps, normed=normed)))
