"""What else the rows of a call give: the measures of mixing ALTI and GlobEnc, and shares of the output's length."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.contributions.layer import LayerNorms
from lorgnette.contributions.mixing import alti, terms
from lorgnette.contributions.norms import all_heads_norms, gram, output_products

MEASURES = ("alti", "globenc", "value_zeroing")
BLOCK = 2**22
"""Floats in one block of terms [row key model]."""


class Alti:
    """Contributions of ALTI, for layers x + attention: through the norm if it comes after the sum, else of the sum."""

    def __init__(self, layer: LayerNorms) -> None:
        parts = layer.parts
        self.gated, self.output_maps = layer.gated, parts.output
        self.x, self.output, self.scale = layer.x, layer.whole, None
        if parts.norm is not None:
            self.scale = layer.scale[..., None]
            self.output_maps, self.x = parts.norm.directed(parts.output), parts.norm.directed(layer.x)
            self.output = parts.norm.directed(layer.whole) * self.scale
            if parts.norm_bias is not None:
                self.output = self.output + parts.norm_bias
        self.transformed: Tensor | None = None
        if self.gated is None:
            self.transformed = torch.einsum("bhkd,hdm->bhkm", layer.value, self.output_maps)
        self.keys: int = layer.value.shape[2]
        self.shares: Tensor = torch.full_like(layer.query, torch.nan)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        step = max(1, BLOCK // (self.keys * self.x.shape[-1]))
        for text in range(texts.start, texts.stop):
            for start in range(rows.start, rows.stop, step):
                stop = min(start + step, rows.stop)
                some = weights[text - texts.start, None, :, start - rows.start : stop - rows.start]
                self._rows(some, text, torch.arange(start, stop, device=weights.device))

    def _rows(self, weights: Float[Tensor, "1 head row key"], text: int, rows: Tensor) -> None:
        contributions = self.contributions(weights, text, rows)
        total = contributions.sum(-1)
        own = contributions[torch.arange(len(rows), device=rows.device), rows]
        self.shares[text, rows] = (total - own) / total  # NaN if nothing contributes

    def contributions(
        self, weights: Float[Tensor, "1 head row key"], text: int, rows: Int[Tensor, " row"]
    ) -> Float[Tensor, "row key"]:
        """C_ij of some rows of one text, not yet normalised."""
        if self.gated is not None:
            parts = self.gated.vectors(weights[0], text, rows, self.output_maps.flatten(0, 1))[None]
        else:
            assert self.transformed is not None
            parts = terms(weights, self.transformed[text : text + 1])
        here = torch.arange(len(rows), device=rows.device)
        parts[0, here, rows] += self.x[text, rows]
        if self.scale is not None:
            parts = parts * self.scale[text, rows, None]
        return alti(parts, self.output[text : text + 1, rows])[0]

    def share(self) -> Float[Tensor, "text token"]:
        return self.shares


class GlobEnc:
    """Norms of the terms after both norms of a post-norm encoder layer, its feed-forward part left out.

    The second norm is linear with its statistics fixed, and divides a whole row by one number, which a share does not
    see. Modarressi et al. 2022, "GlobEnc", NAACL.
    """

    def __init__(self, layer: LayerNorms) -> None:
        self.layer = layer
        first, second = layer.parts.norm, layer.parts.second_norm
        assert first is not None
        assert second is not None
        self.directed = lambda part: second.directed(first.directed(part))
        self.gram: Tensor = gram(layer.value, output_products(self.directed(layer.parts.output)))
        self.total, self.own = torch.zeros_like(layer.query), torch.zeros_like(layer.query)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        norms = all_heads_norms(weights, self.gram[texts])
        own = norms.diagonal(rows.start, 1, 2)
        self.own[texts, rows] = own
        self.total[texts, rows] = norms.sum(-1)

    def own_norm(self, own_weight: Float[Tensor, "text head token"]) -> Float[Tensor, "text token"]:
        """The norm of a token's own term, residual included, from its weights on itself."""
        layer = self.layer
        return self.directed(layer.parts.project(own_weight[..., None] * layer.value) + layer.x).norm(dim=-1)

    def share(self) -> Float[Tensor, "text token"]:
        own = self.own_norm(self.layer.own_weight)
        others = (self.total - self.own).clamp(min=0)
        return others / (others + own)


def further_measures(layer: LayerNorms, names: Sequence[str]) -> dict[str, Alti | GlobEnc]:
    """The measures that exist at this site and come from its weights."""
    out: dict[str, Alti | GlobEnc] = {}
    if "alti" in names and layer.added and (layer.normed or layer.order == "pre"):
        out["alti"] = Alti(layer)
    if "globenc" in names and layer.normed and layer.parts.second_norm is not None and layer.gated is None:
        out["globenc"] = GlobEnc(layer)
    return out


class OutputShares:
    """Watches the rows of a call: what each token adds to the length of the outputs, per head and for all heads.

        per head     c^h_ij = α^h_ij f^h(x_j) · y^h_i / ‖y^h_i‖        y^h_i = Σ_j α^h_ij f^h(x_j)
        all heads    c_ij = Σ_h α^h_ij f^h(x_j) · y_i / ‖y_i‖          y_i = Σ_h y^h_i

    Σ_j c_ij = ‖y_i‖: the parts of the projection on the output add up to its length, and a part that points against it
    is negative (arXiv 2606.07604). y has no b_O, which comes from no token. With u_i = W_O y_i / ‖y_i‖ the sum over
    queries is Σ_i c_ij = v_j · Σ_i α_ij u_i: one product of the size of the context's, and no pair is ever kept.
    """

    def __init__(
        self,
        value: Float[Tensor, "text head key dim"],
        products: Float[Tensor, "head dim head_dim"],
        query: Float[Tensor, "text query"],
        context_of: Callable[[Tensor, slice, slice], Float[Tensor, "text head row dim"]],
        gate: Float[Tensor, "text head query gate"] | None = None,
    ) -> None:
        """`gate`: g_i of the queries, where the model multiplies contexts by it: f(x_j) is (g_i ⊙ v_j) W_O, and its
        product with u_i that of v_j with g_i ⊙ u_i.
        """
        self.gate = gate
        self.value, self.products, self.query = value, products.flatten(0, 1), query
        self.context_of = context_of
        blocks = products.unflatten(-1, products.shape[:2])
        self.own = blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # M_hh: [head dim dim]
        self.of_heads = value.new_zeros(value.shape[:3])
        self.of_all = value.new_zeros(value.shape[0], value.shape[2])

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        value, query = self.value[texts], self.query[texts, rows]
        weights = weights.to(value.dtype)
        context = self.context_of(weights, texts, rows)
        gate = None if self.gate is None else self.gate[texts, :, rows]
        context = context if gate is None else context * gate
        alone = _directed(context @ self.own, context, (-1,), query[:, None])
        flat = context.transpose(1, 2).flatten(2) @ self.products
        together = flat.unflatten(-1, (context.shape[1], -1)).transpose(1, 2)
        together = _directed(together, context, (1, -1), query[:, None])
        if gate is not None:
            alone, together = alone * gate, together * gate
        given = weights.mT @ torch.cat([alone, together], -1)
        of_heads, of_all = (given.unflatten(-1, (2, -1)) * value[..., None, :]).sum(-1).unbind(-1)
        self.of_heads[texts] += of_heads
        self.of_all[texts] += of_all.sum(1)


def _directed(
    projected: Float[Tensor, "text head row dim"],
    context: Float[Tensor, "text head row dim"],
    axes: tuple[int, ...],
    query: Float[Tensor, "text 1 row"],
) -> Float[Tensor, "text head row dim"]:
    """W_O y / ‖y‖ for the queries that count; ‖y‖² is its product with the context. 0 where the output is zero."""
    square = (projected * context).sum(axes, keepdim=True)
    inverse = torch.where(square > 0, square, torch.inf).rsqrt()
    return projected * (inverse * query[..., None])
