"""Means over queries of each text, of what is read off the weights: entropy, peaks, and the mass on kinds of token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Measured, Wanted
from lorgnette.lens.moments import Moments
from lorgnette.lens.parts import Waiting
from lorgnette.statistics.entropy import largest_entropy
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens

OFFSETS = {"self": 0, "previous": -1, "next": 1}
_BY_ROW = ("entropy", "entropy_normalised", "peak", "confidence")


class WeightMeans:
    """Entropy, peak, confidence, sink and mass of every head, for a lens that reads them (`weights`, `distances`)."""

    def __init__(self, lens: "Lens", by: str, kinds: Sequence[str]) -> None:
        self.by, self.kinds = by, tuple(kinds)
        self.waiting: Waiting[_Sums] = Waiting(lens, self._take, _Sums.alike)
        self.moments = Moments(lens, (*_BY_ROW, "sink", "special"))
        self.masses = Moments(lens, "mass", {axes.CATEGORY: (*self.kinds, *OFFSETS)})

    def wanted(self, call: Call, batch: Batch) -> Wanted:
        """The statistics of rows that `add` needs."""
        queries, keys = batch.queries(call.site), batch.keys(call.site)
        return Wanted(
            entropy=True,
            peak=True,
            among=keys.ordinary,
            offsets=tuple(OFFSETS.values()) if call.site.kind == "self" else (),
            received=queries.mask,
        )

    def add(self, call: Call, batch: Batch, rows: Measured) -> None:
        """Sums over the queries of each text, of all columns at once; what is left to do waits for the whole batch.

        The share on a category needs no column: Σ_i Σ_j α_ij [j is of it] is a sum over what the keys receive.
        """
        site = call.site
        entropy, counted = rows["entropy"], self._counted(call, batch, near=rows.at is not None)
        columns = [each[..., None] for each in (entropy, entropy, rows["peak"], rows["peak_among"])]
        total = (torch.cat([*columns, *([] if rows.at is None else [rows.at])], -1) * counted.weights).sum(2)
        self.waiting.add(_Sums(site, total, counted.counts, rows["received"], batch.keys(site)))

    def _counted(self, call: Call, batch: Batch, *, near: bool) -> "_Counts":
        """Which queries count; made once for all sites of a batch that have the same mask."""
        queries, scores = batch.queries(call.site), call.scores
        mask = (id(queries), id(scores.allowed), scores.causal, scores.shape[3], scores.sink is None)
        name = ("weights: which queries count", *mask, near, call.query.dtype)
        if name in batch.shared:
            return batch.shared[name]
        visible, query = call.visible_keys[:, 0], queries.mask
        counted = [query, query & (visible > 1), query, queries.ordinary]
        if near:
            counted += [has_neighbour(query, offset) for offset in OFFSETS.values()]
        wide = torch.promote_types(call.query.dtype, torch.float32)
        weights = torch.stack(counted, -1).to(wide)
        counts = weights.sum(1)
        weights[..., _BY_ROW.index("entropy_normalised")] /= largest_entropy(visible, wide)
        batch.shared[name] = _Counts(queries, scores.allowed, weights[:, None], counts)
        return batch.shared[name]

    def _take(self, some: "Sequence[_Sums]") -> None:
        """Means of each text, from the sums of the same tokens at several sites: [site text head column]."""
        sites, keys = [one.site for one in some], some[0].keys
        total, counts = torch.stack([one.total for one in some]), torch.stack([one.counts for one in some])
        received = torch.stack([one.received for one in some])
        mean, weight = total / counts.clamp(min=1)[:, :, None], self._weight(counts)[:, :, None]
        named = {name: (mean[..., column], weight[..., column]) for column, name in enumerate(_BY_ROW)}
        queries, of_rows = counts[..., :1], weight[..., :1]
        columns = torch.cat([keys.kinds(self.kinds), keys.sinks[..., None]], -1).double()
        shares = (received.double() @ columns) / queries.clamp(min=1)[..., None]
        sink = received.amax(-1) / queries
        special = (shares[..., -1], of_rows[..., 0])
        self.moments.add_sites(sites, **named, special=special, sink=(sink, of_rows[..., 0]))
        near, near_weight = mean[..., len(_BY_ROW) :], weight[..., len(_BY_ROW) :]
        if not near.shape[-1]:
            near = mean.new_zeros(*mean.shape[:-1], len(OFFSETS))
            near_weight = near[..., :1, :]
        mass = torch.cat([shares[..., :-1], near.double()], -1)
        of_kinds = of_rows * self._present(keys)[:, None]
        self.masses.add_sites(sites, mass=(mass, torch.cat([of_kinds, near_weight], -1)))

    def _present(self, keys: Tokens) -> Bool[Tensor, "text kind"]:
        """A text without an opening or closing token has no mass on such; one without punctuation has a mass of 0."""
        present = keys.kinds(self.kinds).any(1)
        for name in ("punctuation", "period_comma", "other"):
            present[:, CATEGORIES.index(name)] = True
        return present

    def _weight(self, counts: Tensor) -> Tensor:
        return counts if self.by == "token" else (counts > 0).to(counts.dtype)


class _Sums(NamedTuple):
    """What a batch gave at one site: sums over queries, how many were summed, and what each key receives of them."""

    site: Site
    total: Float[Tensor, "text head column"]
    counts: Float[Tensor, "text column"]
    received: Float[Tensor, "text head key"]
    keys: Tokens

    def alike(self) -> tuple[object, ...]:
        """Equal for sums that can be taken in together."""
        return id(self.keys), self.total.shape, self.received.shape


class _Counts(NamedTuple):
    """Which queries count for each column, the same at all sites of a batch that have the same mask."""

    queries: Tokens
    allowed: Tensor | None  # held, as both are known by their ids
    weights: Float[Tensor, "text 1 query column"]
    """Normalised entropies have the inverse of the largest entropy of the row."""
    counts: Float[Tensor, "text column"]


def has_neighbour(query: Bool[Tensor, "text query"], offset: int) -> Bool[Tensor, "text query"]:
    """True for queries whose neighbour at this offset is a token of the text too."""
    shifted = torch.zeros_like(query)
    if offset == 0:
        return query
    if offset > 0:
        shifted[:, :-offset] = query[:, offset:]
    else:
        shifted[:, -offset:] = query[:, :offset]
    return query & shifted
