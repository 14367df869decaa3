"""What a batch gives at each site, kept until the batch is through: sites that are alike are worked out together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.lens.moments import Moments
from lorgnette.texts.batch import Tokens


@dataclass(frozen=True)
class Reading:
    """What a batch gave at one site, before means are taken."""

    site: Site
    kinds: Float[Tensor, "text token kind"]
    query: Float[Tensor, "text query"]
    key: Float[Tensor, "text key"]
    has_received: tuple[float, ...]
    parts: dict[str, Tensor]
    sides: tuple[Tokens, Tokens]

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for readings that can be worked out together."""
        shapes = tuple((name, part.shape) for name, part in self.parts.items())
        return self.has_received, *map(id, self.sides), shapes


class Readings:
    """Readings of one batch that are alike: the texts of one site behind those of the other."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        first = readings[0]
        self.sites, self.texts, self.has_received = [r.site for r in readings], len(first.query), first.has_received
        sites = len(readings)
        self.kinds, self.query = first.kinds.repeat(sites, 1, 1), first.query.repeat(sites, 1)
        self.key = first.key.repeat(sites, 1)
        self.parts = {name: torch.cat([reading.parts[name] for reading in readings]) for name in first.parts}

    def add(self, moments: Moments, pairs: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Hand the texts of each site to moments."""
        for number, site in enumerate(self.sites):
            some = slice(number * self.texts, (number + 1) * self.texts)
            moments.add(site, **{name: (value[some], weight[some]) for name, (value, weight) in pairs.items()})
