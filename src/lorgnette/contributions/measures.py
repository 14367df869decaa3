"""Further measures of mixing from the same terms, ALTI and GlobEnc: 1 − a token's own share of its row."""

from collections.abc import Sequence

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
        transformed = torch.einsum("bhkd,hdm->bhkm", layer.value, parts.output)
        self.x, self.output, self.scale = layer.x, layer.whole, None
        if parts.norm is not None:
            self.scale = layer.scale[..., None]
            transformed, self.x = parts.norm.directed(transformed), parts.norm.directed(layer.x)
            self.output = parts.norm.directed(layer.whole) * self.scale
            if parts.norm_bias is not None:
                self.output = self.output + parts.norm_bias
        self.transformed = transformed
        self.shares: Tensor = torch.full_like(layer.query, torch.nan)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        keys, model = self.transformed.shape[2:]
        step = max(1, BLOCK // (keys * model))
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
    if "globenc" in names and layer.normed and layer.parts.second_norm is not None:
        out["globenc"] = GlobEnc(layer)
    return out
