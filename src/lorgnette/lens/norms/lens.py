"""How much each token contributes to a head's output: norms of transformed values, and mixing ratios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Shaped
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.constraints import Interval, OneOf
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer import VARIANTS, LayerNorms, Terms, layer_norms
from lorgnette.contributions.measures import MEASURES, Alti, GlobEnc, OutputShares, further_measures
from lorgnette.contributions.pairs import TokenPairs
from lorgnette.contributions.value_zeroing import value_zeroing
from lorgnette.figures.cells import PARTITION
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.moments import By, Moments
from lorgnette.lens.norms.pair_sample import PairSample, rank_correlations
from lorgnette.lens.parts import Waiting
from lorgnette.lens.signals import Signal, Values
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import ModelOutput

RATIOS = ("attn_w", "attn_n", "attn_res_w", "attn_res_n", "attn_res_ln_n")
"""Mixing ratios of weights (heads averaged) or of norms, without and with residual and LayerNorm."""

_KINDS = (*PARTITION, "punctuation")
_PER_HEAD = ("weight", "norm", "norm_share", "f_norm")
_OUTPUT = ("contribution", "contribution_share")
_ALL_HEADS = ("all_heads_norm", "all_heads_share")
DESCRIPTIONS = {
    "weight": "attention weight on the tokens of a category, mean over queries",
    "norm": "sum of the norms ‖αf(x)‖ over the tokens of a category, mean over queries",
    "norm_share": "share of the norms ‖αf(x)‖, summed over all tokens and queries of a text, that the category "
    "supplies",
    "f_norm": "norm ‖f(x)‖ of the transformed value vectors, mean over the tokens of a category",
    "f_mean": "norm ‖f(x)‖, mean over all tokens of the corpus",
    "f_sd": "standard deviation of ‖f(x)‖ over all N tokens of the corpus (denominator N)",
    "f_cv": "coefficient of variation of ‖f(x)‖: its standard deviation divided by its mean",
    "f_min": "smallest ‖f(x)‖",
    "f_max": "largest ‖f(x)‖",
    "all_heads_norm": "norm of what all heads together take from a token, summed over a category, mean over queries; "
    "by variant also with the residual and LayerNorm",
    "all_heads_share": "share of the category in the summed norms of all tokens of a text",
    "contribution": "what the tokens of a category contribute along the head's output, mean over queries",
    "contribution_share": "signed share of the length of the head's output, summed over a text; a category with a "
    "negative share points against the output",
    "all_heads_contribution": "what the tokens of a category contribute along the output of all heads together, "
    "without its bias",
    "all_heads_contribution_share": "signed share of the length of the output of all heads together",
    "mixing": "norm of what other tokens contribute, divided by the sum of this norm and that of the token's own "
    "part; mean over tokens",
    "mixing_min": "smallest mixing ratio of any token",
    "mixing_max": "largest mixing ratio of any token",
    "expansion": "norm ‖f(x)‖ of all heads together divided by the norm ‖x‖ of the residual stream, mean over tokens",
    "spearman": "rank correlation of the weight α with ‖f(x)‖ over the pairs of a query and a key in a layer, all "
    "heads together",
    "spearman_all": "rank correlation of the weight α with ‖f(x)‖ over the pairs of a query and a key in all layers "
    "and heads",
}


def _norm(data: xr.Dataset) -> Values:
    return _over_kinds(data["norm"]), None


def _length(data: xr.Dataset) -> Values:
    return _over_kinds(data["contribution"]), None


def _over_kinds(array: xr.DataArray) -> xr.DataArray:
    kinds = [kind for kind in PARTITION if kind in array[axes.CATEGORY].values]
    return array.sel({axes.CATEGORY: kinds}).sum(axes.CATEGORY, min_count=1)


class Norms(CentredLens):
    """‖α f(x)‖ of every head and of all heads, with residual and LayerNorm, and mixing ratios.

    f^h(x) = (x W_V^h + b_V^h) W_O^h; b_O belongs to no token and is excluded. Kobayashi et al. 2020 and 2021; the terms
    and the five ratios are defined in `docs/lenses/norms.md`. Means are over the non-padding queries of a text
    (`f_norm`: over tokens), then over texts (`by="token"` pools the tokens); `f_mean` … `f_max` and the extremes of
    `mixing` are over all tokens. In a pre-norm model, f acts on the normalised vector, the residual is the vector
    before the norm, and quantities that need a norm after the sum are missing. In cross-attention, quantities with a
    residual are missing.

    Where a gate of the query multiplies the heads' outputs (Qwen3-Next), f(x_j) is (g_i ⊙ v_j) W_O for query i, in
    norms, ratios and contributions; `f_norm` … `f_max` and the rank correlations are of v_j W_O, and `expansion` is
    missing. Norms then cost as much as W_O does for all pairs of tokens.

    `contribution` adds α ‖f(x)‖ cos(f(x), y), the part of the output norm that each token supplies: it sums to ‖y‖.

    `centred` takes from the values of each head their mean over the corpus, which is read once before: a constant that
    could as well stand in b_O, and counts with it (docs/gauge.md). All norms, ratios and contributions are then those
    of f(x) less its mean; weights stay.

    What it does not tell you: a large vector need not matter to the output, and terms that cancel have large norms.
    """

    name: ClassVar[str] = "norms"
    summary: ClassVar[str] = "how much each token contributes to a head's output (‖αf(x)‖), and mixing ratios"
    signals: ClassVar[Mapping[str, Signal]] = {
        "norm": Signal("Σ_j ‖α f(x_j)‖, what the head moves", _norm),
        "output_length": Signal("‖Σ_j α f(x_j)‖, the length of the head's output (norms:contribution=true)", _length),
    }

    def __init__(
        self,
        by: By = "text",
        *,
        all_heads: bool = True,
        residual: bool = True,
        layer_norm: bool = True,
        measures: Sequence[Annotated[str, OneOf(MEASURES)]] = (),
        contribution: bool = False,
        sample: Annotated[int, Interval(0)] = 8192,
        parts: Sequence[str] = (),
        centred: bool = False,
    ) -> None:
        """`all_heads`: norms of the sum over heads; `residual`: mixing ratios, expansion; `layer_norm`: AttnResLn-N.

        `contribution`: what tokens add to the output's length, with sign, per head and for all heads.
        `sample`: pairs kept per layer and kind of token for rank correlations, 0 for none. `measures`: further mixing
        measures beside the ratios, any of alti, globenc, value_zeroing (the last costs one layer pass per token).
        `parts`: further kinds of token, the named parts of the texts (who speaks in a chat: user, assistant, …).
        `centred`: norms of values less their mean over the corpus.
        """
        super().__init__(centred)
        self.by, self.all_heads, self.contribution, self.sample_size = by, all_heads, contribution, sample
        self.residual: bool = residual or bool(measures)
        self.layer_norm: bool = self.residual and (layer_norm or bool(measures))
        self.measures: tuple[str, ...] = tuple(measures)
        self.kinds: tuple[str, ...] = (*CATEGORIES, *parts)
        self._projections: SiteWeights | None = None
        plain = all_heads and not self.measures and not contribution and not centred
        self.reads = frozenset({"residual"} if self.residual else ()) | (set() if plain else {"cpu"})

    @property
    def projections(self) -> SiteWeights:
        """W_V, W_O and the norms of every layer."""
        if self._projections is None:
            self._projections = SiteWeights(self.subject, layer_norm=self.layer_norm, gated=True)
        return self._projections

    def allocate(self, subject: Subject) -> None:
        _ = self.projections  # a model without known projections is refused here
        self.readings: "Waiting[Reading]" = Waiting(self, self._take, Reading.alike)
        self.ratios = (*RATIOS, *self.measures)
        by_kind, by_ratio = {axes.CATEGORY: self.kinds}, {axes.RATIO: self.ratios}
        self.of_heads: Moments = Moments(self, _PER_HEAD, by_kind)
        by_variant = {axes.VARIANT: VARIANTS, **by_kind}
        self.of_layers: Moments = Moments(self, _ALL_HEADS, by_variant, at="layer")
        if self.contribution:
            self.of_outputs: Moments = Moments(self, _OUTPUT, by_kind)
            self.of_all_outputs: Moments = Moments(self, [f"all_heads_{n}" for n in _OUTPUT], by_kind, at="layer")
        self.expansion: Moments = Moments(self, "expansion", at="layer")
        self.mixing: Moments = Moments(self, "mixing", by_ratio, at="layer")
        shape = (len(self.sites), self.heads)
        self.sums("f_sums", 3, *shape)
        self._extremes("f", *shape)
        self._extremes("mixing", len(self.sites), len(self.ratios))
        self.pairs_sample: PairSample | None = PairSample(self, _KINDS, self.sample_size) if self.sample_size else None

    def _extremes(self, name: str, *shape: int) -> None:
        for tail, merge, none in (("low", "min", torch.inf), ("high", "max", -torch.inf)):
            start = torch.tensor(none, dtype=torch.float64).expand(shape)
            self.state(f"{name}_{tail}", start, merge, on_device=True)

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        return self._call_norms(call, batch).wanted

    def _call_norms(self, call: Call, batch: Batch) -> "_CallNorms":
        """The reading of a call, made once for `wants` and `update`."""
        return call.once(f"norms {id(self)}", lambda: self._read(call, batch))

    def _read(self, call: Call, batch: Batch) -> "_CallNorms":
        gram = self.all_heads or self.residual
        read = self.centring(call)
        watched = bool(self.measures) or self.contribution or not self.all_heads
        layer = layer_norms(
            read, self.projections, batch, residual=self.residual, kinds=self.kinds, gram=gram, watched=watched
        )
        further, pairs = further_measures(layer, self.measures), None
        if self.pairs_sample is not None:
            pairs = self.pairs_sample.draw(call, batch, call.site, any_order=layer.any_order)
        watchers: list[Alti | GlobEnc | OutputShares] = [*further.values()]
        output = None
        if self.contribution:
            gate = None if layer.gated is None else layer.gated.gate
            output = OutputShares(layer.value, layer.parts.products, layer.query, layer.context_of, gate)
            watchers.append(output)
        wanted = layer.wants(pairs=pairs, pairwise=self.all_heads, watchers=watchers)
        return _CallNorms(layer, pairs, further, output, wanted)

    def update(self, call: Call, batch: Batch) -> None:
        measured, seen = self.measured(call, batch), self._call_norms(call, batch)
        layer, output = seen.layer, seen.output
        layer.take(*measured)
        if self.pairs_sample is not None and seen.pairs is not None:
            self.pairs_sample.add(call.site, seen.pairs, layer.f)
        reading = Reading(
            layer.site,
            layer.kinds,
            layer.query,
            layer.key,
            layer.terms(),
            sides=(batch.queries(call.site), batch.keys(call.site)),
            measures={name: measure.share() for name, measure in seen.measures.items()},
            output=None if output is None else (output.of_heads, output.of_all[:, None]),
        )
        self.readings.add(reading)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        if "value_zeroing" in self.measures:
            means = {site: self.centring.mean("value", site) for site in self.sites} if self.centred else None
            for site, share in value_zeroing(self.subject, batch, means):
                query = batch.queries(site).mask
                self.take_ratios([site], {"value_zeroing": share}, query)

    def _take(self, readings: "Sequence[Reading]") -> None:
        """Take the readings of sites that are alike into the moments, once the batch has succeeded."""
        read = Readings(readings)
        present, count = self._present(read.kinds), read.query.sum(-1)
        self._heads(read, present, count)
        if read.output is not None:
            self._outputs(read, read.output, present * self._weight(count)[:, None], count)
        self._f(read)
        self._layers(read, present * self._weight(count)[:, None], count)
        query = read.query[: read.texts]
        if ratios := {**read.measures, **read.terms.ratios()}:
            self.take_ratios(read.sites, ratios, query)

    def _heads(self, read: "Readings", present: Tensor, count: Tensor) -> None:
        """Weight, norm, its share and ‖f‖ by kind of token, for every head."""
        tokens, weight, f = read.kinds.sum(1), read.terms.weight, read.terms.f
        norm = weight * f if read.terms.norm is None else read.terms.norm
        both = torch.cat([weight, norm], 1) @ read.kinds  # Σ_i α, Σ_i ‖α f‖
        weight, norm = (both / count.clamp(min=1)[:, None, None]).chunk(2, 1)
        share, is_share = _shares(norm)
        f_norm = torch.einsum("bhk,bkc->bhc", f, read.kinds) / tokens.clamp(min=1)[:, None]
        by_query = self._weight(count)[:, None, None] * present[:, None]
        pairs = {
            "weight": (weight, by_query),
            "norm": (norm, by_query),
            "norm_share": (share, by_query * is_share),
            "f_norm": (f_norm, self._weight(tokens)[:, None]),
        }
        read.add(self.of_heads, pairs)

    def _outputs(self, read: "Readings", output: tuple[Tensor, ...], present: Tensor, count: Tensor) -> None:
        """What the tokens of each kind add to the length of the output, of each head and of all."""
        means = []
        for part in output:
            given = torch.einsum("brk,bkc->brc", part, read.kinds)
            means.append(given / count.clamp(min=1)[:, None, None])
        (share, is_share), (all_share, is_all_share) = map(_shares, means)
        known = present[:, None]
        read.add(self.of_outputs, dict(zip(_OUTPUT, [(means[0], known), (share, known * is_share)], strict=True)))
        pairs = [(means[1][:, 0], present), (all_share[:, 0], present * is_all_share[:, 0])]
        read.add(self.of_all_outputs, dict(zip(self.of_all_outputs.variables, pairs, strict=True)))

    def _f(self, read: "Readings") -> None:
        """‖f(x)‖ over all tokens: count, sums, extremes."""
        f = read.terms.f.unflatten(0, (-1, read.texts)).double()  # [site text head token]
        token = read.key[: read.texts, None].expand(f.shape[1:]).bool()
        counted = torch.where(token, f, 0.0)
        sums = torch.stack([token.double().expand(f.shape), counted, counted**2]).sum((2, 4))
        low, high = f.masked_fill(~token, torch.inf).amin((1, 3)), f.masked_fill(~token, -torch.inf).amax((1, 3))
        at, heads = self._places(read.sites), slice(f.shape[2])
        self.f_sums[:, at, heads] += sums.to(self.f_sums)
        self.f_low[at, heads] = torch.minimum(self.f_low[at, heads], low.to(self.f_low))
        self.f_high[at, heads] = torch.maximum(self.f_high[at, heads], high.to(self.f_high))

    def _places(self, sites: Sequence[Site]) -> slice | list[int]:
        """The places of these sites in the states: a slice if possible, since a list would be sent to the device."""
        at = [self.position[site] for site in sites]
        return slice(at[0], at[-1] + 1) if at == list(range(at[0], at[0] + len(at))) else at

    def _layers(self, read: "Readings", present: Tensor, count: Tensor) -> None:
        """Numbers of the sum over heads: norms by kind, expansion."""
        if found := read.terms.received(read.query):
            nothing = torch.zeros_like(found["attn_n"])
            received = torch.stack([found.get(name, nothing) for name in VARIANTS], 1)
            norm = (received @ read.kinds) / count.clamp(min=1)[:, None, None]
            share, is_share = _shares(norm)
            known = torch.stack([present * float(name in found) for name in VARIANTS], 1)
            read.add(self.of_layers, {"all_heads_norm": (norm, known), "all_heads_share": (share, known * is_share)})
        if (expansion := read.terms.expansion()) is not None:
            read.add(self.expansion, {"expansion": self._over_tokens(expansion, read.key)})

    def take_ratios(self, sites: Sequence[Site], ratios: dict[str, Tensor], query: Tensor) -> None:
        """Means and extremes of mixing ratios [site·text token]; a token whose terms are all zero has none."""
        none = torch.full_like(next(iter(ratios.values())), torch.nan)
        values = torch.stack([ratios.get(name, none) for name in self.ratios], -1).double()
        mean, weight = self._over_tokens(values, query.repeat(len(sites), 1))
        values = values.unflatten(0, (len(sites), -1))
        counted = query.bool()[..., None] & ~values.isnan()
        low, high = (
            values.masked_fill(~counted, torch.inf).amin((1, 2)),
            values.masked_fill(~counted, -torch.inf).amax((1, 2)),
        )
        pair = (mean.unflatten(0, (len(sites), -1)), weight.unflatten(0, (len(sites), -1)))
        self.mixing.add_sites(sites, mixing=pair)
        at = self._places(sites)
        self.mixing_low[at] = torch.minimum(self.mixing_low[at], low.to(self.mixing_low))
        self.mixing_high[at] = torch.maximum(self.mixing_high[at], high.to(self.mixing_high))

    def _over_tokens(
        self, values: Float[Tensor, "text token *column"], token: Shaped[Tensor, "text token"]
    ) -> tuple[Float[Tensor, "text *column"], Float[Tensor, "text *column"]]:
        """Means over the tokens of a text that have a value, and the weight of the text."""
        has = token.bool().view(*token.shape, *(1,) * (values.dim() - 2)) & ~values.isnan()
        count = has.sum(1)
        mean = torch.where(has, values, 0.0).sum(1) / count.clamp(min=1)
        return mean, self._weight(count.to(values.dtype))

    def _present(self, kinds: Float[Tensor, "text token kind"]) -> Float[Tensor, "text kind"]:
        """1 where a text has such tokens; a text without punctuation has a sum of zero, one without [CLS] has none."""
        present = kinds.any(1)
        for name in ("punctuation", "period_comma", "other"):
            present[:, CATEGORIES.index(name)] = True
        return present.to(kinds.dtype)

    def _weight(self, counts: Tensor) -> Tensor:
        return counts if self.by == "token" else (counts > 0).to(counts.dtype)

    def compute(self) -> Result:
        """Norms and weights by kind of token, ‖f‖, all-heads norms, mixing ratios, expansion, rank correlations."""
        variables = self.of_heads.cells() | self._f_arrays()
        labels = self.of_heads.labels()
        if self.all_heads:
            variables, labels = variables | self.of_layers.cells(), labels | self.of_layers.labels()
        if self.contribution:
            variables |= self.of_outputs.cells() | self.of_all_outputs.cells()
        if self.residual:
            variables |= self.expansion.cells() | (mixing := self.mixing.cells())
            variables |= self._mixing_extremes(mixing["mixing_count"])
            labels |= self.mixing.labels()
        if self.pairs_sample is not None:
            found = rank_correlations(self, self.pairs_sample, self.kinds)
            variables |= {name: array.variable for name, array in found.items()}
        return self.centring.mark(self.result(variables, labels, DESCRIPTIONS))

    def _mixing_extremes(self, count: xr.Variable) -> dict[str, xr.Variable]:
        both = torch.stack([self.mixing_low, self.mixing_high])
        both = torch.where(torch.isfinite(both), both, torch.nan)
        low, high = (xr.Variable(count.dims, cells) for cells in self.by_layer.laid_out(both.numpy(), lead=1))
        return {"mixing_min": low, "mixing_min_count": count, "mixing_max": high, "mixing_max_count": count}

    def _f_arrays(self) -> dict[str, xr.Variable]:
        count, total, squares = self.f_sums
        mean = total / count
        variance = squares / count - mean**2
        sd = torch.where(variance > 1e-14 * mean**2, variance, 0.0).sqrt()  # equal values leave nothing but rounding
        cells = torch.stack([mean, sd, torch.where(mean > 0, sd / mean, 0.0), self.f_low, self.f_high, count])
        laid_out = self.by_head.laid_out(torch.where(count > 0, cells, torch.nan).numpy(), lead=1)
        names, dims = ("f_mean", "f_sd", "f_cv", "f_min", "f_max"), self.by_head.dims
        out = {name: xr.Variable(dims, cell) for name, cell in zip(names, laid_out[:-1], strict=True)}
        tokens = xr.Variable(dims, np.nan_to_num(laid_out[-1]).astype("int64"))
        return out | {f"{name}_count": tokens for name in names}


@dataclass(frozen=True)
class Reading:
    """The numbers of one batch at one site, before means are taken."""

    site: Site
    kinds: Float[Tensor, "text token kind"]
    query: Float[Tensor, "text query"]
    key: Float[Tensor, "text key"]
    terms: Terms
    sides: tuple[Tokens, Tokens]
    measures: dict[str, Float[Tensor, "text token"]] = field(default_factory=dict)
    """Further mixing measures, by name."""
    output: tuple[Float[Tensor, "text head key"], Float[Tensor, "text 1 key"]] | None = None
    """What each token adds to the length of the output, of each head and of all."""

    def alike(self) -> tuple[object, ...]:
        """A key that is equal for readings which can be computed together."""
        named = {**self.terms.present(), **self.measures}
        return *map(id, self.sides), self.output is None, tuple((name, part.shape) for name, part in named.items())


class Readings:
    """Alike readings of one batch, concatenated over sites along the axis of texts."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        first, sites = readings[0], len(readings)
        self.sites, self.texts = [reading.site for reading in readings], len(first.query)
        self.kinds, self.query = first.kinds.repeat(sites, 1, 1), first.query.repeat(sites, 1)
        self.key = first.key.repeat(sites, 1)
        self.terms = Terms.joined([reading.terms for reading in readings])
        self.measures = {name: torch.cat([r.measures[name] for r in readings]) for name in first.measures}
        outputs = [reading.output for reading in readings if reading.output is not None]
        self.output = tuple(torch.cat(parts) for parts in zip(*outputs, strict=True)) if outputs else None

    def add(self, moments: Moments, pairs: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Add the texts of each site to moments."""
        by_site = lambda part: part.unflatten(0, (len(self.sites), -1))  # noqa: E731
        moments.add_sites(self.sites, **{name: (by_site(v), by_site(w)) for name, (v, w) in pairs.items()})


class _CallNorms(NamedTuple):
    """The quantities of one call that are needed before the sweep over its rows, and what is read after it."""

    layer: LayerNorms
    pairs: TokenPairs | None
    measures: dict[str, Alti | GlobEnc]
    output: OutputShares | None
    wanted: tuple[Wanted, ...]


def _shares(norm: Float[Tensor, "text row kind"]) -> tuple[Tensor, Tensor]:
    """Each kind's part of the total over all tokens, and 1 where there is a total."""
    parts = [norm[..., CATEGORIES.index(kind)] for kind in PARTITION]  # a list as index is sent to the device
    total = torch.stack(parts, -1).sum(-1, keepdim=True)
    return norm / total.where(total > 0, 1.0), (total > 0).to(norm.dtype)
