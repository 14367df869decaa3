"""What each head's attention weights look like: how spread out, how sure, and where they go."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.attending.sweep import Measured, Wanted
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.entropy import normalised_entropy
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES

OFFSETS = {"self": 0, "previous": -1, "next": 1}
_DESCRIPTIONS = {
    "entropy": "−Σ α log α of a row, in nats, mean over queries",
    "entropy_normalised": "entropy over the log of the number of keys the row may see (rows with one key left out)",
    "peak": "largest weight of a row, mean over queries",
    "confidence": "largest weight on a non-special key, not renormalised, mean over non-special queries",
    "mass": "share of the weight on a kind of key, mean over queries",
    "sink": "share of the weight on the single most read key of a text",
    "special": "share of the weight on all special tokens (on the first where a text has none), mean over queries",
}


class Weights(Lens):
    """Entropy, peak, confidence and mass of every head (Clark et al. 2019, §3; Voita et al. 2019, §4).

    Means are over the non-padding queries of a text, specials included, then over texts (`by="token"` pools them).
    `previous`, `self` and `next` are over the queries that have such a neighbour, and only in self-attention.

    What it does not tell you: a weight is not what arrives. A head may put all its weight on a token whose value vector
    is nearly zero (see the `norms` lens), and a sure head may not matter for the output.
    """

    name: ClassVar[str] = "weights"
    summary: ClassVar[str] = "entropy, confidence and where the weight goes, for every head"

    def __init__(self, by: str = "text", *, parts: Sequence[str] = ()) -> None:
        """`parts`: further kinds of key, the named parts of the texts (who speaks in a chat: user, assistant, …)."""
        super().__init__()
        if by not in ("text", "token"):
            raise UserError(f"The 'by' parameter of Weights must be 'text' or 'token'. Got {by!r} instead.")
        self.by, self.kinds = by, (*CATEGORIES, *parts)

    def allocate(self, subject: Subject) -> None:
        self.moments = Moments(self, ("entropy", "entropy_normalised", "peak", "confidence", "sink", "special"))
        self.masses: Moments = Moments(self, "mass", {axes.CATEGORY: (*self.kinds, *OFFSETS)})

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        asking, read = batch.queries(call.site), batch.keys(call.site)
        wanted = Wanted(
            features=read.kinds(self.kinds),
            entropy=True,
            peak=True,
            among=read.ordinary,
            offsets=tuple(OFFSETS.values()) if call.site.kind == "self" else (),
            received=asking.mask,
        )
        return (wanted, Wanted(features=read.sinks[..., None]))

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        asking, read = batch.queries(site), batch.keys(site)
        query, (rows, sinks) = asking.mask.to(torch.float32), self.measured(call, batch)
        seen = call.seen_keys[:, 0]
        word = asking.ordinary.float()
        entropy = rows["entropy"]
        normalised = normalised_entropy(entropy, seen[:, None].expand_as(entropy))
        counts = query.sum(-1)
        self.moments.add(
            site,
            entropy=self._over_queries(entropy, query),
            entropy_normalised=self._over_queries(normalised, query * (seen > 1)),
            peak=self._over_queries(rows["peak"], query),
            confidence=self._over_queries(rows["peak_among"], word),
            special=self._over_queries(sinks["average"][..., 0], query),
            sink=(rows["received"].amax(-1) / counts[:, None], self._weight(counts)[:, None]),
        )
        self.masses.add(site, mass=self._masses(rows, query, read))

    def _masses(self, rows: Measured, query: Tensor, read: Tokens) -> tuple[Tensor, Tensor]:
        """Mass per category, then per offset; a text without an opening or closing token has no such mass."""
        there = read.kinds(self.kinds).any(1)
        for name in ("punctuation", "period_comma", "other"):
            there[:, CATEGORIES.index(name)] = True
        averaged, weight = self._over_queries(rows["average"], query[..., None])
        weight = weight * there[:, None, :]
        if rows.at is None:
            empty = averaged.new_zeros(*averaged.shape[:2], len(OFFSETS))
            return torch.cat([averaged, empty], -1), torch.cat([weight, empty[:, :1]], -1)
        neighbour = torch.stack([has_neighbour(query, offset) for offset in OFFSETS.values()], -1)
        near, near_weight = self._over_queries(rows["at"], neighbour)
        return torch.cat([averaged, near], -1), torch.cat([weight, near_weight], -1)

    def _over_queries(
        self, values: Float[Tensor, "text head query *column"], query: Float[Tensor, "text query *#column"]
    ) -> tuple[Float[Tensor, "text head *column"], Float[Tensor, "text 1 *#column"]]:
        """Mean over the queries that count, and the weight of the text."""
        total = (values * query[:, None].to(values.dtype)).sum(2)
        counts = query.sum(1)
        return total / counts.clamp(min=1)[:, None], self._weight(counts)[:, None]

    def _weight(self, counts: Tensor) -> Tensor:
        return counts if self.by == "token" else (counts > 0).to(counts.dtype)

    def compute(self) -> Result:
        """Entropy, peak, confidence, sink, and mass by category."""
        variables = self.moments.arrays() | self.masses.arrays()
        for name, text in _DESCRIPTIONS.items():
            variables[name].attrs["description"] = text
        return self.result(variables)


def has_neighbour(query: Float[Tensor, "text query"], offset: int) -> Float[Tensor, "text query"]:
    """1 for queries whose neighbour at this offset is a token of the text too."""
    shifted = torch.zeros_like(query)
    if offset == 0:
        return query
    if offset > 0:
        shifted[:, :-offset] = query[:, offset:]
    else:
        shifted[:, -offset:] = query[:, :offset]
    return query * shifted
