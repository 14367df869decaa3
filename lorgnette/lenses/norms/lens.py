"""How much of what each head reads arrives: norms of transformed vectors beside the weights, and mixing ratios."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attention import Call, Site
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer import VARIANTS, LayerNorms
from lorgnette.contributions.measures import MEASURES, further_measures
from lorgnette.contributions.pair_sample import PairSample
from lorgnette.contributions.value_zeroing import value_zeroing
from lorgnette.corpora.batch import Batch
from lorgnette.corpora.token_kinds import CATEGORIES
from lorgnette.errors import UserError
from lorgnette.lenses.base import Lens
from lorgnette.lenses.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.spearman import rounded, spearman
from lorgnette.subject import Subject

RATIOS = ("attn_w", "attn_n", "attn_res_w", "attn_res_n", "attn_res_ln_n")
"""Mixing ratios by what a term is: of weights (heads averaged) or of norms; without and with residual and LayerNorm."""

PARTITION = ("cls", "sep", "period_comma", "other")
_KINDS = (*PARTITION, "punctuation")
_PER_HEAD = ("weight", "norm", "norm_share", "f_norm")
_DESCRIPTIONS = {
    "weight": "Σ_j α_ij over the tokens j of a kind, mean over queries",
    "norm": "Σ_j ‖α_ij f(x_j)‖ over the tokens j of a kind, mean over queries",
    "norm_share": "the kind's part of Σ_j ‖α_ij f(x_j)‖ over all tokens and queries of a text",
    "f_norm": "‖f(x_j)‖, mean over the tokens of a kind",
    "f_mean": "‖f(x)‖, mean over all tokens of the corpus",
    "f_sd": "standard deviation of ‖f(x)‖ over all tokens of the corpus",
    "f_cv": "coefficient of variation of ‖f(x)‖: sd / mean",
    "f_min": "smallest ‖f(x)‖",
    "f_max": "largest ‖f(x)‖",
    "all_heads_norm": "Σ_j ‖Σ_h α f(x_j)‖ over the tokens j of a kind, mean over queries; with residual, with norm",
    "all_heads_share": "the kind's part of the summed norms of all tokens of a text",
    "mixing": "‖Σ_{j≠i} term_j‖ / (‖Σ_{j≠i} term_j‖ + ‖term_i‖), mean over tokens i",
    "mixing_min": "smallest mixing ratio of any token",
    "mixing_max": "largest mixing ratio of any token",
    "expansion": "‖Σ_h f^h(x)‖ / ‖x‖, mean over tokens; x as it is in the residual stream",
    "spearman": "rank correlation of α_ij with ‖f(x_j)‖ over the pairs of a layer, all heads together",
    "spearman_all": "rank correlation of α_ij with ‖f(x_j)‖ over the pairs of all layers and heads",
}


class Norms(Lens):
    """‖α f(x)‖ of every head and of all heads, with residual and LayerNorm, and mixing ratios.

    f^h(x) = (x W_V^h + b_V^h) W_O^h; b_O belongs to no token and is left out. Kobayashi et al. 2020 and 2021; the terms
    and the five ratios are in `docs/lenses/norms.md`. Means are over the non-padding queries of a text (`f_norm`: over
    tokens), then over texts (`by="token"` pools); `f_mean` … `f_max` and the extremes of `mixing` are over all tokens.
    With a norm before attention f acts on the normalised vector, the residual is the raw one, and what needs a norm
    after the sum is missing. In cross-attention nothing with a residual exists.

    What it does not tell you: a large vector need not matter to the output, and terms that cancel have large norms.
    """

    name: ClassVar[str] = "norms"
    summary: ClassVar[str] = "how much of what each head reads arrives: norms beside weights, mixing ratios"

    def __init__(
        self,
        by: str = "text",
        *,
        all_heads: bool = True,
        residual: bool = True,
        layer_norm: bool = True,
        measures: Sequence[str] = (),
        sample: int = 8192,
    ) -> None:
        """`all_heads`: norms of the heads' sum; `residual`: mixing ratios, expansion; `layer_norm`: AttnResLn-N.

        `sample`: pairs kept per layer and kind of token for rank correlations, 0 for none. `measures`: further mixing
        measures beside the ratios, any of alti, globenc, value_zeroing (the last costs one layer pass per token).
        """
        super().__init__()
        if by not in ("text", "token"):
            raise UserError(f"The 'by' parameter of Norms must be 'text' or 'token'. Got {by!r} instead.")
        unknown = [name for name in measures if name not in MEASURES]
        if unknown:
            raise UserError(f"The 'measures' of Norms may be {', '.join(MEASURES)}. Got {unknown[0]!r} instead.")
        if sample < 0:
            raise UserError(f"The 'sample' parameter of Norms must be 0 or more. Got {sample} instead.")
        self.by, self.all_heads, self.sample_size = by, all_heads, sample
        self.residual = residual or bool(measures)
        self.layer_norm = self.residual and (layer_norm or bool(measures))
        self.measures = tuple(measures)
        self.around: SiteWeights | None = None
        self.wants_residual = self.residual  # type: ignore[misc]

    def bind(self, subject: Subject) -> None:
        super().bind(subject)
        if self.around is None:  # it was pickled, and the model stayed behind
            self.around = SiteWeights(subject, layer_norm=self.layer_norm)

    def allocate(self, subject: Subject) -> None:
        self.around = SiteWeights(subject, layer_norm=self.layer_norm)
        self.per_head = Moments(self, [f"{name}/{kind}" for name in _PER_HEAD for kind in CATEGORIES])
        self.ratios = (*RATIOS, *self.measures)
        columns = [f"{name}/{v}/{k}" for name in ("norm", "share") for v in VARIANTS for k in CATEGORIES]
        self.per_layer = Moments(self, [*columns, "expansion", *self.ratios], "layer_totals", heads=1)
        shape = (len(self.sites), self.heads)
        self.sums("f_sums", 3, *shape)
        self._extremes("f", *shape)
        self._extremes("mixing", len(self.sites), len(self.ratios))
        self.pairs_sample = PairSample(self, _KINDS, self.sample_size) if self.sample_size else None

    def _extremes(self, name: str, *shape: int) -> None:
        start = torch.full(shape, torch.inf, dtype=torch.float64)
        self.add_state(f"{name}_low", start, dist_reduce_fx="min")
        self.add_state(f"{name}_high", -start, dist_reduce_fx="max")

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        assert self.around is not None
        layer = LayerNorms(call, self.around, batch, gram=self.all_heads or self.residual, residual=self.residual)
        pairs = self.pairs_sample.draw(call, batch, site) if self.pairs_sample is not None else None
        further = further_measures(layer, self.measures)
        layer.measure(pairs=pairs, pairwise=self.all_heads, watchers=further.values())
        if self.pairs_sample is not None and pairs is not None:
            self.pairs_sample.add(site, pairs, layer.f)
        self._heads(layer)
        self._f(layer)
        self._layers(layer, {name: measure.share() for name, measure in further.items()})

    def finish(self, batch: Batch, outputs: Any) -> None:
        if "value_zeroing" in self.measures and self.around is not None:
            for site, share in value_zeroing(self.around.subject, batch):
                query = batch.queries(site).mask
                self._ratios(site, {"value_zeroing": share}, query)

    def _heads(self, layer: LayerNorms) -> None:
        """Weight, norm, its share and ‖f‖ by kind of token, for every head."""
        there = self._there(layer)
        tokens = layer.kinds.sum(1)
        count = layer.query.sum(-1)
        mean = (layer.average * layer.query[:, None, :, None]).sum(2) / count.clamp(min=1)[:, None, None]
        weight, norm = mean.chunk(2, -1)
        share, is_share = _shares(norm)
        f_norm = torch.einsum("bhk,bkc->bhc", layer.f, layer.kinds) / tokens.clamp(min=1)[:, None]
        by_query = self._weight(count)[:, None, None] * there[:, None]
        heads = weight.shape[1]
        weights = [by_query.expand(-1, heads, -1)] * 2
        weights += [by_query * is_share, self._weight(tokens)[:, None].expand(-1, heads, -1)]
        self.per_head.add(layer.site, torch.cat([weight, norm, share, f_norm], -1), torch.cat(weights, -1))

    def _f(self, layer: LayerNorms) -> None:
        """‖f(x)‖ over all tokens: count, sums, extremes."""
        at, heads = self.position[layer.site], layer.f.shape[1]
        token = layer.key[:, None].expand(layer.f.shape).bool()
        f = layer.f.double()
        counted = torch.where(token, f, 0.0)
        self.f_sums[:, at, :heads] += torch.stack([token.double(), counted, counted**2]).sum((1, 3)).cpu()
        low = f.masked_fill(~token, torch.inf).amin((0, 2)).cpu()
        high = f.masked_fill(~token, -torch.inf).amax((0, 2)).cpu()
        self.f_low[at, :heads] = torch.minimum(self.f_low[at, :heads], low)
        self.f_high[at, :heads] = torch.maximum(self.f_high[at, :heads], high)

    def _layers(self, layer: LayerNorms, further: dict[str, Tensor]) -> None:
        """What all heads give together: norms by kind, expansion, mixing ratios."""
        count = layer.query.sum(-1)
        there = self._there(layer) * self._weight(count)[:, None]
        norm = torch.einsum("bvk,bkc->bvc", layer.received, layer.kinds) / count.clamp(min=1)[:, None, None]
        share, is_share = _shares(norm)
        known = layer.has_received[None, :, None] * there[:, None]
        values = torch.cat([norm.flatten(1), share.flatten(1)], -1)[:, None]
        weights = torch.cat([known.flatten(1), (known * is_share).flatten(1)], -1)[:, None]
        names = [name for name in self.per_layer.columns if "/" in name]
        self._add(layer.site, names, values, weights)
        if layer.expansion is not None:
            self._over_tokens(layer.site, ["expansion"], layer.expansion[..., None], layer.key)
        self._ratios(layer.site, {**layer.ratios(), **further}, layer.query)

    def _ratios(self, site: Site, ratios: dict[str, Tensor], query: Tensor) -> None:
        """Means and extremes of mixing ratios; a token whose terms are all zero has none."""
        if not ratios:
            return
        values = torch.stack(list(ratios.values()), -1)
        self._over_tokens(site, list(ratios), values, query)
        at, columns = self.position[site], [self.ratios.index(name) for name in ratios]
        counted = (query.bool()[..., None] & ~values.isnan()).cpu()
        values = values.double().cpu()
        low = values.masked_fill(~counted, torch.inf).amin((0, 1))
        high = values.masked_fill(~counted, -torch.inf).amax((0, 1))
        self.mixing_low[at, columns] = torch.minimum(self.mixing_low[at, columns], low)
        self.mixing_high[at, columns] = torch.maximum(self.mixing_high[at, columns], high)

    def _over_tokens(
        self, site: Site, names: list[str], values: Float[Tensor, "text token column"], token: Tensor
    ) -> None:
        """Add means over the tokens of a text that have a value."""
        has = token.bool()[..., None] & ~values.isnan()
        count = has.sum(1)
        mean = torch.where(has, values, 0.0).sum(1) / count.clamp(min=1)
        self._add(site, names, mean[:, None], self._weight(count.to(values.dtype))[:, None])

    def _add(self, site: Site, names: Sequence[str], values: Tensor, weights: Tensor) -> None:
        """Add some columns of the per-layer moments."""
        columns = [self.per_layer.index[name] for name in names]
        shape = (*values.shape[:2], len(self.per_layer.columns))
        all_values, all_weights = values.new_zeros(shape), weights.new_zeros(shape)
        all_values[..., columns], all_weights[..., columns] = values, weights
        self.per_layer.add(site, all_values, all_weights)

    def _there(self, layer: LayerNorms) -> Float[Tensor, "text kind"]:
        """1 where a text has such tokens; a text without punctuation has a sum of zero, one without [CLS] has none."""
        there = layer.kinds.any(1)
        for name in ("punctuation", "period_comma", "other"):
            there[:, CATEGORIES.index(name)] = True
        return there.to(layer.f.dtype)

    def _weight(self, counts: Tensor) -> Tensor:
        return counts if self.by == "token" else (counts > 0).to(counts.dtype)

    def compute(self) -> Result:
        """Norms and weights by kind of token, ‖f‖, all-heads norms, mixing ratios, expansion, rank correlations."""
        variables: dict[str, Any] = {}
        for name in _PER_HEAD:
            variables |= self._laid_out(
                self.per_head, name, [f"{name}/{kind}" for kind in CATEGORIES], (axes.CATEGORY,)
            )
        variables |= self._f_arrays()
        by_kind = (axes.VARIANT, axes.CATEGORY)
        for name, column in (("all_heads_norm", "norm"), ("all_heads_share", "share")) if self.all_heads else ():
            columns = [f"{column}/{variant}/{kind}" for variant in VARIANTS for kind in CATEGORIES]
            variables |= self._laid_out(self.per_layer, name, columns, by_kind)
        if self.residual:
            variables |= self._laid_out(self.per_layer, "expansion", ["expansion"], ())
            variables |= self._laid_out(self.per_layer, "mixing", self.ratios, (axes.RATIO,))
            for tail, state in (("_min", self.mixing_low), ("_max", self.mixing_high)):
                cell = torch.where(torch.isfinite(state), state, torch.nan)
                variables["mixing" + tail] = self._per_layer(cell, axes.RATIO)
                variables[f"mixing{tail}_count"] = variables["mixing_count"]
        if self.pairs_sample is not None:
            variables |= self._spearman(self.pairs_sample)
        for name, text in _DESCRIPTIONS.items():
            if name in variables:
                variables[name].attrs["description"] = text
        axis = self.grid(self.f_low).coords
        names = {axes.CATEGORY: CATEGORIES, axes.VARIANT: VARIANTS, axes.RATIO: self.ratios}
        used = {dim for array in variables.values() for dim in array.dims}
        labels = {dim: list(labels) for dim, labels in names.items() if dim in used}
        return self.result(variables, {**{dim: axis[dim].values for dim in axes.PER_HEAD}, **labels})

    def _laid_out(
        self, moments: Moments, name: str, columns: Sequence[str], rest: tuple[str, ...]
    ) -> dict[str, xr.Variable]:
        """Means with errors and counts on [stack layer (head) …], several columns spread over the axes of `rest`."""
        sizes = {axes.CATEGORY: len(CATEGORIES), axes.VARIANT: len(VARIANTS), axes.RATIO: len(self.ratios)}
        first = axes.PER_HEAD if moments is self.per_head else axes.PER_HEAD[:2]
        out = {}
        for key, array in moments.arrays(name, columns, axes.CATEGORY).items():
            shape = [*array.shape[: len(first)], *(sizes[axis] for axis in rest)]
            out[key] = xr.Variable((*first, *rest), array.values.reshape(shape))
        return out

    def _per_layer(self, cells: Float[Tensor, "site column"], axis: str) -> xr.Variable:
        return xr.Variable((*axes.PER_HEAD[:2], axis), self.grid(cells[:, None], (axis,)).values[:, :, 0])

    def _f_arrays(self) -> dict[str, xr.Variable]:
        count, total, squares = self.f_sums
        mean = total / count
        variance = squares / count - mean**2
        sd = torch.where(variance > 1e-14 * mean**2, variance, 0.0).sqrt()  # equal values leave nothing but rounding
        cells = {"f_mean": mean, "f_sd": sd, "f_cv": torch.where(mean > 0, sd / mean, 0.0)}
        cells |= {"f_min": self.f_low, "f_max": self.f_high}
        out = {name: self.grid(torch.where(count > 0, cell, torch.nan)).variable for name, cell in cells.items()}
        tokens = self.grid(count).fillna(0).astype("int64").variable
        return out | {f"{name}_count": tokens for name in cells}

    def _spearman(self, pairs: PairSample) -> dict[str, xr.Variable]:
        """By layer, and over the layers of a stack; `_count` is the sample's size, `_pairs` how many there were."""
        names = list(dict.fromkeys(site.name for site in self.sites))
        groups = [[k for k, site in enumerate(self.sites) if site.name == name] for name in names]
        seen = torch.zeros(len(self.sites), len(CATEGORIES), dtype=torch.float64)
        seen[:, [CATEGORIES.index(kind) for kind in _KINDS]] = self.pairs_seen
        rho, count = _correlations(pairs, [[k] for k in range(len(self.sites))])
        out = {"spearman": self._per_layer(rho, axes.CATEGORY)}
        for name, cells in (("spearman_count", count), ("spearman_pairs", seen)):
            out[name] = self._per_layer(cells, axes.CATEGORY).fillna(0).astype("int64")
        rho, count = _correlations(pairs, groups)
        dims = (axes.STACK, axes.CATEGORY)
        out["spearman_all"] = xr.Variable(dims, rho.numpy())
        out["spearman_all_count"] = xr.Variable(dims, count.numpy().astype("int64"))
        totals = torch.stack([seen[group].sum(0) for group in groups])
        out["spearman_all_pairs"] = xr.Variable(dims, totals.numpy().astype("int64"))
        return out


def _correlations(pairs: PairSample, groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """ρ and the size of the sample for groups of sites and all kinds; NaN and 0 where there is none."""
    rho = torch.full((len(groups), len(CATEGORIES)), torch.nan, dtype=torch.float64)
    count = torch.zeros_like(rho)
    for number, sites in enumerate(groups):
        for kind, name in enumerate(_KINDS):
            weight, norm = pairs.sample(sites, kind)
            found = spearman(rounded(weight), rounded(norm))
            if found is not None:
                rho[number, CATEGORIES.index(name)] = found
                count[number, CATEGORIES.index(name)] = len(weight)
    return rho, count


def _shares(norm: Float[Tensor, "text row kind"]) -> tuple[Tensor, Tensor]:
    """Each kind's part of the total over all tokens, and 1 where there is a total."""
    total = norm[..., [CATEGORIES.index(kind) for kind in PARTITION]].sum(-1, keepdim=True)
    return norm / total.where(total > 0, 1.0), (total > 0).to(norm.dtype)
