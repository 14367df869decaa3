"""Norms behind a gate of the query: y_i = Σ_j α_ij (g_i ⊙ v_j) W_O, so that what key j gives depends on query i.

No Gram matrix of a key alone gives ‖Σ_h α^h_ij (g^h_i ⊙ v^h_j) W_O^h‖: the vectors are made pair by pair, a block of
rows at a time: for each head, n² d² multiplications (d: the size of a head), and for the sum over H heads n² · H d ·
model, what W_O costs for n² tokens; memory is that of a block. A gate of one number for each head only scales the
weights, α g, and costs nothing more.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.contributions.head_weights import Projections
from lorgnette.contributions.norms import all_heads_norms, gram, head_norms

BLOCK = 2**22
"""Floats in one block of gated values [row key head·dim]."""


class GatedNorms:
    """Norms of what each key gives each query behind the gate, for a block of pairs; keeps those of the last block."""

    def __init__(self, call: Call, maps: Projections, gate: Float[Tensor, "batch head query dim"]) -> None:
        self.call, self.maps, self.gate = call, maps, gate
        self.by_channel: bool = gate.shape[-1] > 1
        self.value: Tensor = call.value.to(maps.wide)
        self.kept: dict[str, tuple[tuple[slice, slice], Tensor]] = {}

    @staticmethod
    def of(call: Call, maps: Projections, gate: Float[Tensor, "batch head query dim"]) -> "GatedNorms":
        """Made once for all lenses that ask."""
        return call.once("gated norms", lambda: GatedNorms(call, maps, gate))

    def heads(
        self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice
    ) -> Float[Tensor, "text head row key"]:
        """‖α^h_ij (g^h_i ⊙ v^h_j) W_O^h‖."""
        return self._once("heads", weights, texts, rows)

    def all(
        self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice, *, normed: bool = False
    ) -> Float[Tensor, "text row key"]:
        """‖Σ_h α^h_ij (g^h_i ⊙ v^h_j) W_O^h‖, before the norm or (but for its division by s) behind it."""
        return self._once("all behind the norm" if normed else "all", weights, texts, rows)

    def vectors(
        self,
        weights: Float[Tensor, "head row key"],
        text: int,
        rows: slice | Tensor,
        output: Float[Tensor, "width model"],
    ) -> Float[Tensor, "row key model"]:
        """Σ_h α^h_ij (g^h_i ⊙ v^h_j) W^h of one text, `output` the heads' W one below the other."""
        gated = weights.to(output)[..., None] * self.gate[text][:, rows, None] * self.value[text][:, None]
        return gated.permute(1, 2, 0, 3).flatten(2) @ output

    def _once(self, what: str, weights: Tensor, texts: slice, rows: slice) -> Tensor:
        kept = self.kept.get(what)
        if kept is None or kept[0] != (texts, rows):
            made = self._heads if what == "heads" else self._all
            self.kept[what] = kept = (texts, rows), made(what, weights, texts, rows)
        return kept[1]

    def _heads(self, what: str, weights: Tensor, texts: slice, rows: slice) -> Tensor:
        if not self.by_channel:
            norms = self.call.once("ungated norms", lambda: head_norms(self.value, self.maps.products))
            return weights * self.gate[texts, :, rows] * norms[texts, :, None]
        out = weights.to(self.maps.wide, copy=True)
        for text, some, here in self._steps(weights, texts, rows):
            gated = self.gate[text][:, here, None] * self.value[text][:, None]  # [head row key dim]
            out[text - texts.start, :, some] *= (gated @ self.maps.head_factors[:, None]).norm(dim=-1)
        return out

    def _all(self, what: str, weights: Tensor, texts: slice, rows: slice) -> Tensor:
        maps, normed = self.maps, what != "all"
        if not self.by_channel:
            gated = weights * self.gate[texts, :, rows].to(weights)
            products = maps.normed_products if normed else maps.products
            assert products is not None
            pairs = self.call.once(f"ungated gram of {what}", lambda: gram(self.value, products))
            return all_heads_norms(gated, pairs[texts])
        factor = maps.normed_factor if normed else maps.factor
        out = weights.new_zeros(weights.shape[0], *weights.shape[2:], dtype=maps.wide)
        for text, some, here in self._steps(weights, texts, rows):
            own = text - texts.start
            out[own, some] = self.vectors(weights[own, :, some], text, here, factor).norm(dim=-1)
        return out

    def _steps(self, weights: Tensor, texts: slice, rows: slice) -> list[tuple[int, slice, slice]]:
        """Texts, and rows that fit into a block: where they are in the given weights, and among all rows."""
        heads, count, keys = weights.shape[1:]
        step = max(1, BLOCK // (heads * keys * self.value.shape[-1]))
        starts = range(0, count, step)
        places = [slice(start, min(start + step, count)) for start in starts]
        every = range(texts.start, texts.start + len(weights))
        return [(text, p, slice(rows.start + p.start, rows.start + p.stop)) for text in every for p in places]


class ArrivingNorms:
    """‖α^h_ij (g^h_i ⊙ v^h_j) W_O^h‖ summed while rows are swept: by key over some queries, by query over all keys.

    Without a gate these are Σ_i α_ij ‖f(x_j)‖ and Σ_j α_ij ‖f(x_j)‖, which need no pair of tokens.
    """

    def __init__(
        self,
        call: Call,
        maps: Projections,
        gate: Float[Tensor, "batch head query dim"],
        queries: Float[Tensor, "batch query"] | Bool[Tensor, "batch query"],
    ) -> None:
        self.norms = GatedNorms.of(call, maps, gate)
        heads = gate.shape[1]
        self.queries: Tensor = queries.to(maps.wide)
        self.of_keys: Tensor = self.queries.new_zeros(len(queries), heads, call.key.shape[2])
        self.of_queries: Tensor = self.queries.new_zeros(len(queries), heads, queries.shape[1])

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        norms = self.norms.heads(weights, texts, rows)
        self.of_keys[texts] += torch.einsum("bhqk,bq->bhk", norms, self.queries[texts, rows])
        self.of_queries[texts, :, rows] = norms.sum(-1)

    def lengths(self, received: Float[Tensor, "batch head key"]) -> Float[Tensor, "batch head key"]:
        """‖(g^h_i ⊙ v^h_j) W_O^h‖, mean over the queries as they attend to key j; 0 where none of them does."""
        return torch.where(received > 0, self.of_keys / received.where(received > 0, 1.0), 0.0)
