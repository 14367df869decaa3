"""The norms of one attention call: per head, of all heads together, with residual and with LayerNorm.

What several lenses use of a call (`…_of`) is computed by the first of them and shared by the others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import ModuleType

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.attending.scores import EVERY
from lorgnette.attending.sweep import Measured, Wanted, Watcher
from lorgnette.contributions.centred import CentredCall
from lorgnette.contributions.gated import GatedNorms
from lorgnette.contributions.head_weights import Projections, SiteWeights
from lorgnette.contributions.mixing import mixing_ratio
from lorgnette.contributions.norms import all_heads_norms, gram, head_norms, summed_norms, transformed_norms
from lorgnette.contributions.pairs import TokenPairs
from lorgnette.kernels import faster, kernels
from lorgnette.texts.batch import Batch
from lorgnette.texts.token_kinds import CATEGORIES

VARIANTS = ("attn_n", "attn_res_n", "attn_res_ln_n")
"""Terms of all heads: Σ_h α f(x_j); the same with x_i added to token i's own; the same through LayerNorm."""


class LayerNorms:
    """The norms of one call: `wants` requests statistics of its rows, `take` reads them, then the norms can be had."""

    any_order: bool = False
    """Whether `wants` takes pairs in any order, with infinite numbers for those that are none."""

    own_norm: Tensor
    others_norm: Tensor
    own_res_norm: Tensor
    own_ln_norm: Tensor
    others_ln_norm: Tensor

    _norms: "Received | None"
    _of_heads: "_OfHeads | None" = None

    def __init__(
        self,
        call: Call,
        projections: SiteWeights,
        batch: Batch,
        *,
        gram: bool,
        residual: bool,
        kinds: Sequence[str] = CATEGORIES,
    ) -> None:
        self.call, self.site = call, call.site
        self.parts = projections[self.site]
        self.centred: bool = isinstance(call, CentredCall)
        self.output_bias: Tensor | None = (
            call.output_bias(self.parts) if isinstance(call, CentredCall) else self.parts.output_bias
        )
        self.order: str = projections.sites[self.site].order
        self.wide: torch.dtype = self.parts.wide
        gate = projections.gate_of(call)
        self.gated: GatedNorms | None = None if gate is None else GatedNorms.of(call, self.parts, gate)
        gram = gram and gate is None  # a gate leaves a key without a vector of its own
        queries, keys = batch.queries(self.site), batch.keys(self.site)
        self.queries: Tensor = queries.mask
        self.query, self.key = queries.as_numbers(self.wide), keys.as_numbers(self.wide)
        self.kinds: Tensor = keys.kinds_as_numbers(kinds, self.wide)
        self.gram: Tensor | None = gram_of(call, self.parts) if gram else None
        self.f: Tensor = transformed_norms_of(call, self.parts) if self.gram is None else transformed_norms(self.gram)
        self.added: bool = residual and projections.residual(self.site)
        self.compares: bool = residual and self.site.kind == "self"
        self.normed: bool = self.added and self.parts.norm is not None
        self._size: Tensor | None = None
        self._total: Tensor | None = None
        self._scale: Tensor | None = None
        self._own: Tensor | None = None
        self._shown: tuple[Tensor, slice, slice] | None = None

    @cached_property
    def value(self) -> Float[Tensor, "text head key dim"]:
        return self.call.value.to(self.wide)

    @cached_property
    def x(self) -> Float[Tensor, "text token model"]:
        return self.call.residual.to(self.wide)

    def behind_gate(
        self, states: Float[Tensor, "text head row dim"], texts: slice = EVERY, rows: slice = EVERY
    ) -> Float[Tensor, "text head row dim"]:
        """What is left of contexts, or parts of them, where the model multiplies them by a gate."""
        return states if self.gated is None else states * self.gated.gate[texts, :, rows]

    @property
    def total(self) -> Float[Tensor, "text token model"]:
        """Every head's part of the output, b_O left out."""
        if self._total is None:
            self._total = self.parts.project(self.behind_gate(self.call.context.to(self.wide)))
        return self._total

    @property
    def whole(self) -> Float[Tensor, "text token model"]:
        """The vector that goes into the norm, or into the residual stream."""
        return self._whole(self.total, self.x)

    @property
    def scale(self) -> Float[Tensor, "text token"]:
        """What the norm multiplies each token by; 0 where there is nothing to normalise."""
        if self._scale is None:
            self._scale = self._inverse_deviation(self.whole)
        return self._scale

    def _whole(self, total: Tensor, x: Tensor) -> Tensor:
        bias = self.output_bias
        return total + x if bias is None else total + x + bias

    def _inverse_deviation(self, whole: Tensor) -> Tensor:
        assert self.parts.norm is not None
        deviation = self.parts.norm.deviation(whole)
        return torch.where(deviation > 0, 1.0 / deviation, 0.0)

    def scale_of(self, weights: Tensor, texts: slice, rows: slice) -> Float[Tensor, "text row"]:
        """The scale of the rows being swept, before the context of the others is known."""
        if self.call.has_context:
            return self.scale[texts, rows]
        if self._total is None or self._scale is None or self._own is None:
            self._total, self._scale = torch.empty_like(self.x), torch.empty_like(self.query)
            self._own = torch.empty_like(self.x)
        total = self.parts.project(self.behind_gate(self.context_of(weights, texts, rows), texts, rows))
        own = weights.diagonal(rows.start, -2, -1)[..., None] * self.value[texts, :, rows]
        self._total[texts, rows] = total
        self._own[texts, rows] = self.parts.project(self.behind_gate(own, texts, rows))
        self._scale[texts, rows] = self._inverse_deviation(self._whole(total, self.x[texts, rows]))
        return self._scale[texts, rows]

    def context_of(self, weights: Tensor, texts: slice, rows: slice) -> Float[Tensor, "text head row dim"]:
        """The context of the rows that are swept: what the sweep has shown, or else made from their weights."""
        if self._shown is not None and self._shown[1:] == (texts, rows):
            return self._shown[0].to(self.wide)
        return weights.to(self.wide) @ self.value[texts]

    def _show(self, context: Float[Tensor, "text head row dim"], texts: slice, rows: slice) -> None:
        self._shown = (context, texts, rows)

    def wants(self, *, pairs: TokenPairs | None, pairwise: bool, watchers: Iterable[Watcher]) -> tuple[Wanted, ...]:
        """What each key receives, own weights, sums of the norms of pairs.

        Norms of a head by kind of token need no more: Σ_i α_ij ‖f(x_j)‖ is ‖f(x_j)‖ times what j receives.
        """
        watching: list[Watcher] = list(watchers)
        known = self.gram is not None or self.gated is not None
        self._norms = BlockNorms(self) if pairwise and known else None
        if isinstance(self._norms, BlockNorms):
            watching.append(self._norms)
        if pairs is not None and len(pairs.number):
            watching.append(pairs.look)
        self._of_heads = None if self.gated is None else _OfHeads(self, self.gated)
        if self._of_heads is not None:
            watching.append(self._of_heads)

        def block(weights: Tensor, texts: slice, rows: slice) -> None:
            for watch in watching:
                watch(weights, texts, rows)

        rows = Wanted(received=self.queries, offsets=(0,) if self.compares else ())
        show = None if self.centred else self._show  # the sweep shows the context of the values as they are
        return (replace(rows, block=block, context_block=show) if watching else rows,)

    def take(self, rows: Measured) -> None:
        """The statistics that these requests produced."""
        self.weight: Tensor = rows["received"].to(self.wide)
        if self.compares:
            self.own_weight: Tensor = rows["at"][..., 0].to(self.wide)
            self._own_terms()

    def _own_terms(self) -> None:
        """Norms of what a token gets from itself and from all others, with and without residual and norm."""
        own = self._own
        if own is None:
            own = self.parts.project(self.behind_gate(self.own_weight[..., None] * self.value))
        # `total` is a product of the same shape, so a token that reads nothing but itself has others of exactly zero.
        others = self.total - own
        self.own_norm, self.others_norm = own.norm(dim=-1), others.norm(dim=-1)
        if self.added:
            with_x = own + self.x
            self.own_res_norm = with_x.norm(dim=-1)
        if self.normed:
            assert self.parts.norm is not None
            self.own_ln_norm = own_norms_of(self.call, self.parts, lambda: with_x) * self.scale
            self.others_ln_norm = self.parts.norm.directed(others).norm(dim=-1) * self.scale

    def terms(self) -> "Terms":
        """What the lens `norms` computes its numbers from, for all layers of a batch together."""
        out: dict[str, Tensor] = {} if self._of_heads is None else {"norm": self._of_heads.norm}
        if self.compares:
            out |= {"own_weight": self.own_weight, "visible": self.call.visible_keys[:, 0]}
            out |= {"own": self.own_norm, "others": self.others_norm}
            out |= {} if self.call.scores.sink is None else {"sink": self.call.sink}
        if self.added:
            out["own_res"] = self.own_res_norm
        if self.normed:
            out |= {"own_ln": self.own_ln_norm, "others_ln": self.others_ln_norm}
        if self._norms is not None:
            out |= {"pairs": self._norms.plain, "pairs_own": self._norms.plain_own}
            out |= {"pairs_ln": self._norms.normed, "pairs_own_ln": self._norms.normed_own} if self.normed else {}
        if self.added and self.gram is not None:
            out["summed_f"] = summed_norms(self.gram)
            out["size"] = self.x.norm(dim=-1) if self._size is None else self._size
        return Terms(self.weight, self.f, **out)


def layer_norms(
    call: Call,
    projections: SiteWeights,
    batch: Batch,
    *,
    gram: bool,
    residual: bool,
    kinds: Sequence[str],
    watched: bool,
) -> LayerNorms:
    """The norms of a call, made in the way that is fastest for it. `watched`: something reads its blocks of weights."""
    on_chip = gram and not watched and not call.is_gated and norm_kernels(call) is not None
    quick = faster(LayerNorms) if on_chip else None
    return (quick or LayerNorms)(call, projections, batch, gram=gram, residual=residual, kinds=kinds)


@dataclass(frozen=True)
class Terms:
    """The norms of one call, or of several concatenated; None where a site lacks a quantity."""

    weight: Float[Tensor, "text head key"]
    """Σ_i α_ij over the queries of a text."""
    f: Float[Tensor, "text head key"]
    """‖f(x_j)‖, without the gate where there is one."""
    norm: Float[Tensor, "text head key"] | None = None
    """Σ_i ‖α_ij f(x_j)‖ behind a gate; without one it is weight · f."""
    own_weight: Float[Tensor, "text head token"] | None = None
    """α_ii."""
    visible: Shaped[Tensor, "text token"] | None = None
    """How many keys a query sees."""
    sink: Float[Tensor, "text head token"] | None = None
    """The weight of a learnt sink."""
    own: Float[Tensor, "text token"] | None = None
    """‖Σ_h α_ii f(x_i)‖; `own_res` with x_i added, `own_ln` behind the LayerNorm."""
    own_res: Float[Tensor, "text token"] | None = None
    own_ln: Float[Tensor, "text token"] | None = None
    others: Float[Tensor, "text token"] | None = None
    """‖Σ_{j≠i} Σ_h α_ij f(x_j)‖; `others_ln` behind the LayerNorm."""
    others_ln: Float[Tensor, "text token"] | None = None
    pairs: Float[Tensor, "text key"] | None = None
    """Σ_i ‖Σ_h α_ij f(x_j)‖ over the queries of a text, and of it what a token gives itself; then behind the norm."""
    pairs_own: Float[Tensor, "text token"] | None = None
    pairs_ln: Float[Tensor, "text key"] | None = None
    pairs_own_ln: Float[Tensor, "text token"] | None = None
    summed_f: Float[Tensor, "text token"] | None = None
    """‖Σ_h f(x)‖."""
    size: Float[Tensor, "text token"] | None = None
    """‖x‖."""

    def present(self) -> dict[str, Tensor]:
        """The quantities that exist at this site, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def ratios(self) -> dict[str, Float[Tensor, "text token"]]:
        """The mixing ratios that exist at these sites; NaN where a token's terms are all zero."""
        if self.own_weight is None or self.visible is None or self.own is None or self.others is None:
            return {}
        mean = self.own_weight.mean(1)  # heads are averaged first
        others = (self.visible > 0).to(mean.dtype) - mean
        if self.sink is not None:
            others = others - self.sink.mean(1).to(mean.dtype)
        others = others.clamp(min=0)
        out = {"attn_w": mixing_ratio(others, mean), "attn_n": mixing_ratio(self.others, self.own)}
        if self.own_res is not None:
            out["attn_res_w"] = mixing_ratio(0.5 * others, 0.5 * mean + 0.5)
            out["attn_res_n"] = mixing_ratio(self.others, self.own_res)
        if self.own_ln is not None and self.others_ln is not None:
            out["attn_res_ln_n"] = mixing_ratio(self.others_ln, self.own_ln)
        return out

    def expansion(self) -> Float[Tensor, "text token"] | None:
        """‖Σ_h f^h(x)‖ / ‖x‖; NaN for x = 0."""
        if self.size is None or self.summed_f is None:
            return None
        return self.summed_f / self.size.where(self.size > 0, torch.nan)

    def received(self, query: Float[Tensor, "text query"]) -> dict[str, Float[Tensor, "text key"]]:
        """Σ_i ‖term_ij‖ over the queries of a text, for each variant that exists at these sites."""
        if self.pairs is None or self.pairs_own is None:
            return {}
        out = {"attn_n": self.pairs}
        # Only the diagonal differs: a token's own term has the residual in it.
        if self.own_res is not None:
            out["attn_res_n"] = self.pairs + query * (self.own_res - self.pairs_own)
        if self.own_ln is not None and self.pairs_ln is not None and self.pairs_own_ln is not None:
            out["attn_res_ln_n"] = self.pairs_ln + query * (self.own_ln - self.pairs_own_ln)
        return {name: part.clamp(min=0) for name, part in out.items()}

    @staticmethod
    def joined(several: "Sequence[Terms]") -> "Terms":
        """Several calls concatenated along their texts; all must have the same quantities."""
        first = several[0].present()
        return Terms(**{name: torch.cat([getattr(one, name) for one in several]) for name in first})


@dataclass
class Received:
    """Norms of pairs summed over queries, and the norms of each token with itself; before the norm and behind it."""

    plain: Float[Tensor, "text key"]
    plain_own: Float[Tensor, "text query"]
    normed: Float[Tensor, "text key"]
    normed_own: Float[Tensor, "text query"]


_Pairwise = Callable[[Tensor, slice, slice], Float[Tensor, "text row key"]]


class _OfHeads:
    """Sums the norms of what each head gives behind its gate over queries, block by block."""

    def __init__(self, layer: LayerNorms, gated: GatedNorms) -> None:
        self.query, self.gated, self.norm = layer.query, gated, torch.zeros_like(layer.f)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        query = self.query[texts, None, None, rows]
        self.norm[texts] += (query @ self.gated.heads(weights, texts, rows))[:, :, 0]


class BlockNorms(Received):
    """The same, added up block by block."""

    def __init__(self, layer: LayerNorms) -> None:
        self.layer, self.query = layer, layer.query
        if layer.gated is not None:
            self.norms: _Pairwise = layer.gated.all
            self.norms_ln: _Pairwise | None = partial(layer.gated.all, normed=True) if layer.normed else None
        else:
            self.norms = pair_norms_of(layer.call, layer.parts)
            self.norms_ln = pair_norms_of(layer.call, layer.parts, normed=True) if layer.normed else None
        new = layer.f.new_zeros
        self.plain, self.plain_own = new(layer.f.shape[0], layer.f.shape[2]), torch.zeros_like(layer.query)
        self.normed, self.normed_own = torch.zeros_like(self.plain), torch.zeros_like(self.plain_own)
        self.own = layer.compares

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        query = self.query[texts, None, rows]
        norms = self.norms(weights, texts, rows)
        self.plain[texts] += (query @ norms)[:, 0]
        if self.own:
            self.plain_own[texts, rows] = norms.diagonal(rows.start, 1, 2)
        if self.norms_ln is not None:
            norms = self.norms_ln(weights, texts, rows)
            scale = self.layer.scale_of(weights, texts, rows)
            self.normed[texts] += ((query * scale[:, None]) @ norms)[:, 0]
            self.normed_own[texts, rows] = norms.diagonal(rows.start, 1, 2) * scale


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
