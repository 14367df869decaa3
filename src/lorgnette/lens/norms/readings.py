"""What a batch gives at each site, kept until the batch is through: sites that are alike are worked out together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
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
    parts: dict[str, Tensor]
    sides: tuple[Tokens, Tokens]

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for readings that can be worked out together."""
        shapes = tuple((name, part.shape) for name, part in self.parts.items())
        return *map(id, self.sides), shapes


class Readings:
    """Readings of one batch that are alike: the texts of one site behind those of the other."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        first = readings[0]
        self.sites, self.texts = [r.site for r in readings], len(first.query)
        sites = len(readings)
        self.kinds, self.query = first.kinds.repeat(sites, 1, 1), first.query.repeat(sites, 1)
        self.key = first.key.repeat(sites, 1)
        self.parts = {name: torch.cat([reading.parts[name] for reading in readings]) for name in first.parts}

    def add(self, moments: Moments, pairs: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Hand the texts of each site to moments."""
        by_site = lambda part: part.unflatten(0, (len(self.sites), -1))  # noqa: E731
        moments.add_sites(self.sites, **{name: (by_site(v), by_site(w)) for name, (v, w) in pairs.items()})

    def ratios(self) -> dict[str, Float[Tensor, "text token"]]:
        """The mixing ratios that exist at these sites; NaN where a token's terms are all zero."""
        parts = self.parts
        out = {name.removeprefix("ratio "): part for name, part in parts.items() if name.startswith("ratio ")}
        if "own weight" not in parts:
            return out
        mean = parts["own weight"].mean(1)  # heads are averaged first
        others = (parts["visible"] > 0).to(mean.dtype) - mean
        if "sink" in parts:
            others = others - parts["sink"].mean(1).to(mean.dtype)
        others = others.clamp(min=0)
        out |= {"attn_w": mixing_ratio(others, mean), "attn_n": mixing_ratio(parts["others"], parts["own"])}
        if "own with x" in parts:
            out["attn_res_w"] = mixing_ratio(0.5 * others, 0.5 * mean + 0.5)
            out["attn_res_n"] = mixing_ratio(parts["others"], parts["own with x"])
        if "own behind the norm" in parts:
            out["attn_res_ln_n"] = mixing_ratio(parts["others behind the norm"], parts["own behind the norm"])
        return out

    def expansion(self) -> Float[Tensor, "text token"]:
        """‖Σ_h f^h(x)‖ / ‖x‖; NaN for x = 0."""
        size = self.parts["size"]
        return self.parts["sum of f"] / size.where(size > 0, torch.nan)

    def received(self) -> dict[str, Float[Tensor, "text key"]]:
        """Σ_i ‖term_ij‖ over the queries of a text, for each variant that exists at these sites."""
        parts, out = self.parts, {"attn_n": self.parts["pairs"]}
        # Only the diagonal differs: a token's own term has the residual in it.
        if "own with x" in parts:
            out["attn_res_n"] = parts["pairs"] + self.query * (parts["own with x"] - parts["pairs own"])
        if "own behind the norm" in parts:
            own = parts["own behind the norm"] - parts["pairs own behind the norm"]
            out["attn_res_ln_n"] = parts["pairs behind the norm"] + self.query * own
        return {name: part.clamp(min=0) for name, part in out.items()}
