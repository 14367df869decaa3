"""The numbers of a batch at each site, held until the pass ends, so that sites of one shape are computed together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.contributions.layer import Terms
from lorgnette.contributions.mixing import mixing_ratio
from lorgnette.lens.moments import Moments
from lorgnette.texts.batch import Tokens


@dataclass(frozen=True)
class Reading:
    """What a batch gave at one site, before means are taken."""

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
        """Equal for readings that can be computed together."""
        named = {**self.terms.present(), **self.measures}
        return *map(id, self.sides), self.output is None, tuple((name, part.shape) for name, part in named.items())


class Readings:
    """Readings of one batch that are alike: the texts of one site behind those of the other."""

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
        """Hand the texts of each site to moments."""
        by_site = lambda part: part.unflatten(0, (len(self.sites), -1))  # noqa: E731
        moments.add_sites(self.sites, **{name: (by_site(v), by_site(w)) for name, (v, w) in pairs.items()})

    def ratios(self) -> dict[str, Float[Tensor, "text token"]]:
        """The mixing ratios that exist at these sites; NaN where a token's terms are all zero."""
        of, out = self.terms, dict(self.measures)
        if of.own_weight is None or of.visible is None or of.own is None or of.others is None:
            return out
        mean = of.own_weight.mean(1)  # heads are averaged first
        others = (of.visible > 0).to(mean.dtype) - mean
        if of.sink is not None:
            others = others - of.sink.mean(1).to(mean.dtype)
        others = others.clamp(min=0)
        out |= {"attn_w": mixing_ratio(others, mean), "attn_n": mixing_ratio(of.others, of.own)}
        if of.own_res is not None:
            out["attn_res_w"] = mixing_ratio(0.5 * others, 0.5 * mean + 0.5)
            out["attn_res_n"] = mixing_ratio(of.others, of.own_res)
        if of.own_ln is not None and of.others_ln is not None:
            out["attn_res_ln_n"] = mixing_ratio(of.others_ln, of.own_ln)
        return out

    def expansion(self) -> Float[Tensor, "text token"] | None:
        """‖Σ_h f^h(x)‖ / ‖x‖; NaN for x = 0."""
        size, summed = self.terms.size, self.terms.summed_f
        return None if size is None or summed is None else summed / size.where(size > 0, torch.nan)

    def received(self) -> dict[str, Float[Tensor, "text key"]]:
        """Σ_i ‖term_ij‖ over the queries of a text, for each variant that exists at these sites."""
        of = self.terms
        if of.pairs is None or of.pairs_own is None:
            return {}
        out = {"attn_n": of.pairs}
        # Only the diagonal differs: a token's own term has the residual in it.
        if of.own_res is not None:
            out["attn_res_n"] = of.pairs + self.query * (of.own_res - of.pairs_own)
        if of.own_ln is not None and of.pairs_ln is not None and of.pairs_own_ln is not None:
            out["attn_res_ln_n"] = of.pairs_ln + self.query * (of.own_ln - of.pairs_own_ln)
        return {name: part.clamp(min=0) for name, part in out.items()}
