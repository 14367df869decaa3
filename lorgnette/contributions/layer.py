"""The norms of one attention call: per head, of all heads together, with residual and with LayerNorm."""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.attending.sweep import Wanted
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.mixing import mixing_ratio
from lorgnette.contributions.norms import all_heads_norms, head_norms, summed_norms, transformed_norms
from lorgnette.contributions.norms import gram as coefficients
from lorgnette.contributions.pair_sample import Pairs
from lorgnette.texts.batch import Batch
from lorgnette.texts.token_kinds import CATEGORIES

VARIANTS = ("attn_n", "attn_res_n", "attn_res_ln_n")
"""Terms of all heads: Σ_h α f(x_j); the same with x_i added to token i's own; the same through LayerNorm."""

Watcher = Callable[[Float[Tensor, "text head row key"], slice, slice], None]


class LayerNorms:
    """Reads one call: first `measure`, which sweeps the weights once, then the properties."""

    call: Call
    query: Tensor
    key: Tensor
    received: Tensor
    has_received: Tensor
    scale: Tensor

    def __init__(
        self,
        call: Call,
        around: SiteWeights,
        batch: Batch,
        *,
        gram: bool,
        residual: bool,
        kinds: Sequence[str] = CATEGORIES,
    ) -> None:
        self.call, self.site = call, call.site
        self.parts = around[self.site]
        self.order: str = around.sites[self.site].order
        self.wide: torch.dtype = self.parts.products.dtype
        self.value: Tensor = call.value.to(self.wide)
        asking, read = batch.queries(self.site), batch.keys(self.site)
        self.query, self.key = asking.mask.to(self.wide), read.mask.to(self.wide)
        self.kinds: Tensor = (read.kinds(kinds) & read.mask[..., None]).to(self.wide)
        self.gram: Tensor | None = coefficients(self.value, self.parts.products) if gram else None
        if self.gram is None:
            self.f = head_norms(self.value, self.parts.products)
        else:
            self.f = transformed_norms(self.gram)
        self.added: bool = residual and around.residual(self.site)
        self.compares: bool = residual and self.site.kind == "self"
        self.normed: bool = self.added and self.parts.norm is not None
        if self.added or self.compares:
            # Every head's part of the output, b_O left out; two products of one shape, so that a token that reads
            # nothing but itself has others of exactly zero.
            self.total: Tensor = self.parts.project(call.context.to(self.wide))
        if self.added:
            self.x: Tensor = call.residual.to(self.wide)
            bias = self.parts.output_bias
            self.whole: Tensor = self.total + self.x if bias is None else self.total + self.x + bias
        if self.normed:
            assert self.parts.norm is not None
            deviation = self.parts.norm.deviation(self.whole)
            self.scale = torch.where(deviation > 0, 1.0 / deviation, 0.0)  # 0 where there is nothing to normalise

    def measure(self, *, pairs: Pairs | None, pairwise: bool, watchers: Iterable[Watcher]) -> None:
        """One sweep over the weights: averages by kind of token, own weights, sums of the norms of pairs."""
        watching: list[Watcher] = list(watchers)
        norms = _Received(self) if pairwise and self.gram is not None else None
        if norms is not None:
            watching.append(norms)
        if pairs is not None and len(pairs.number):
            watching.append(pairs.look)

        def block(weights: Tensor, texts: slice, rows: slice) -> None:
            for watch in watching:
                watch(weights, texts, rows)

        heads = self.f.shape[1]
        kinds = self.kinds[:, None].expand(-1, heads, -1, -1)
        wanted = Wanted(
            features=torch.cat([kinds, kinds * self.f[..., None]], -1),
            offsets=(0,) if self.compares else (),
            block=block if watching else None,
        )
        rows = self.call.measure(wanted)
        assert rows.average is not None
        self.average: Tensor = rows.average
        if self.compares:
            assert rows.at is not None
            self.own_weight: Tensor = rows.at[..., 0].to(self.wide)
            self._own_terms()
        self.received, self.has_received = self._received(norms)

    def _own_terms(self) -> None:
        """Norms of what a token gets from itself and from all others, with and without residual and norm."""
        own = self.parts.project(self.own_weight[..., None] * self.value)
        others = self.total - own
        self.own_norm, self.others_norm = own.norm(dim=-1), others.norm(dim=-1)
        if self.added:
            with_x = own + self.x
            self.own_res_norm = with_x.norm(dim=-1)
        if self.normed:
            assert self.parts.norm is not None
            self.own_ln_norm = self.parts.norm.directed(with_x).norm(dim=-1) * self.scale
            self.others_ln_norm = self.parts.norm.directed(others).norm(dim=-1) * self.scale

    def ratios(self) -> dict[str, Float[Tensor, "text token"]]:
        """The mixing ratios that exist at this site; NaN where a token's terms are all zero."""
        if not self.compares:
            return {}
        mean = self.own_weight.mean(1)  # heads are averaged first
        seen = (self.call.seen_keys[:, 0] > 0).to(mean.dtype)
        others = (seen - mean - self.call.sink.mean(1).to(mean.dtype)).clamp(min=0)
        out = {"attn_w": mixing_ratio(others, mean), "attn_n": mixing_ratio(self.others_norm, self.own_norm)}
        if self.added:
            out["attn_res_w"] = mixing_ratio(0.5 * others, 0.5 * mean + 0.5)
            out["attn_res_n"] = mixing_ratio(self.others_norm, self.own_res_norm)
        if self.normed:
            out["attn_res_ln_n"] = mixing_ratio(self.others_ln_norm, self.own_ln_norm)
        return out

    @property
    def expansion(self) -> Float[Tensor, "text token"] | None:
        """‖Σ_h f^h(x)‖ / ‖x‖; NaN for x = 0."""
        if not self.added or self.gram is None:
            return None
        size = self.x.norm(dim=-1)
        return summed_norms(self.gram) / size.where(size > 0, torch.nan)

    def _received(
        self, norms: "_Received | None"
    ) -> tuple[Float[Tensor, "text variant key"], Float[Tensor, " variant"]]:
        """Σ_i ‖term_ij‖ over the queries of a text, for each variant, and 1 for those that exist."""
        out = self.f.new_zeros(self.f.shape[0], len(VARIANTS), self.f.shape[2])
        known = out.new_zeros(len(VARIANTS))
        if norms is None:
            return out, known
        out[:, 0], known[0] = norms.plain, 1.0
        if self.added:
            # Only the diagonal differs: a token's own term has the residual in it.
            out[:, 1], known[1] = norms.plain + self.query * (self.own_res_norm - norms.plain_own), 1.0
        if self.normed:
            out[:, 2], known[2] = norms.normed + self.query * (self.own_ln_norm - norms.normed_own), 1.0
        return out.clamp_(min=0), known


class _Received:
    """Sums the norms of pairs over queries, block by block, and keeps those of a token with itself."""

    def __init__(self, layer: LayerNorms) -> None:
        assert layer.gram is not None
        self.query, self.gram, self.gram_ln = layer.query, layer.gram, None
        new = layer.f.new_zeros
        self.plain, self.plain_own = new(layer.f.shape[0], layer.f.shape[2]), torch.zeros_like(layer.query)
        self.normed, self.normed_own = torch.zeros_like(self.plain), torch.zeros_like(self.plain_own)
        self.own = layer.compares
        if layer.normed:
            assert layer.parts.normed_products is not None
            self.gram_ln = coefficients(layer.value, layer.parts.normed_products)
            self.scale = layer.scale

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        query = self.query[texts, None, rows]
        norms = all_heads_norms(weights, self.gram[texts])
        self.plain[texts] += (query @ norms)[:, 0]
        if self.own:
            self.plain_own[texts, rows] = norms.diagonal(rows.start, 1, 2)
        if self.gram_ln is not None:
            norms = all_heads_norms(weights, self.gram_ln[texts])
            scale = self.scale[texts, rows]
            self.normed[texts] += ((query * scale[:, None]) @ norms)[:, 0]
            self.normed_own[texts, rows] = norms.diagonal(rows.start, 1, 2) * scale
