"""The attention weights of each head: entropy, confidence, and the share on each category of token."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.signals import Signal, opposite, variable
from lorgnette.results import Result
from lorgnette.statistics.entropy import largest_entropy
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES

OFFSETS = {"self": 0, "previous": -1, "next": 1}
_BY_ROW = ("entropy", "entropy_normalised", "peak", "confidence")
_DESCRIPTIONS = {
    "entropy": "−Σ α log α of a row, in nats, mean over queries",
    "entropy_normalised": "entropy divided by the log of the number of visible keys (rows with one key excluded)",
    "peak": "largest weight of a row, mean over queries",
    "confidence": "largest weight on a non-special key, not renormalised, mean over non-special queries",
    "mass": "share of the weight on a category of key, mean over queries",
    "sink": "share of the weight on the most attended key of a text",
    "special": "share of the weight on all special tokens (on the first token if a text has none), mean over queries",
}


class _Sums(NamedTuple):
    """What a batch gave at one site: sums over queries, how many were summed, and what each key receives of them."""

    site: Site
    total: Float[Tensor, "text head column"]
    counts: Float[Tensor, "text column"]
    received: Float[Tensor, "text head key"]
    read: Tokens


class _Counts(NamedTuple):
    """Which queries count for each column, the same at all sites of a batch that have the same mask."""

    asking: Tokens
    allowed: Tensor | None
    alike: tuple[object, ...]
    weights: Float[Tensor, "text 1 query column"]
    """Normalised entropies have the inverse of the largest entropy of the row."""
    counts: Float[Tensor, "text column"]


class Weights(Lens):
    """Entropy, peak, confidence and mass of every head (Clark et al. 2019, §3; Voita et al. 2019, §4).

    Means are over the non-padding queries of a text, specials included, then over texts (`by="token"` pools them).
    `previous`, `self` and `next` are over the queries that have such a neighbour, and only in self-attention.

    What it does not tell you: how much a token contributes. A head may put all its weight on a token whose value vector
    is nearly zero (see the lens `norms`), and a confident head may not matter for the output.
    """

    name: ClassVar[str] = "weights"
    summary: ClassVar[str] = "entropy, confidence, and share of attention on each category of token"
    signals: ClassVar[Mapping[str, Signal]] = {
        "sharpness": Signal("1 − normalised entropy of the weights", opposite(variable("entropy_normalised"))),
        "confidence": Signal("largest weight on a word", variable("confidence")),
    }

    def __init__(self, by: str = "text", *, parts: Sequence[str] = ()) -> None:
        """`parts`: further categories of key, the named parts of the texts (speakers of a chat: user, assistant, …)."""
        super().__init__()
        if by not in ("text", "token"):
            raise UserError(f"The 'by' parameter of Weights must be 'text' or 'token'. Got {by!r} instead.")
        self.by, self.kinds = by, (*CATEGORIES, *parts)
        self._waiting: list[_Sums] = []
        self._counts: list[_Counts] = []

    @property
    def replays(self) -> bool:
        return self.per_text is None

    @property
    def at_once(self) -> bool:
        return True

    def holds(self) -> list[tuple[object, str]]:
        return [*super().holds(), (self, "_waiting"), (self, "_counts")]

    def allocate(self, subject: Subject) -> None:
        self.moments = Moments(self, (*_BY_ROW, "sink", "special"))
        self.masses: Moments = Moments(self, "mass", {axes.CATEGORY: (*self.kinds, *OFFSETS)})

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        asking, read = batch.queries(call.site), batch.keys(call.site)
        wanted = Wanted(
            entropy=True,
            peak=True,
            among=read.ordinary,
            offsets=tuple(OFFSETS.values()) if call.site.kind == "self" else (),
            received=asking.mask,
        )
        return (wanted,)

    def update(self, call: Call, batch: Batch) -> None:
        """Sums over the queries of each text, of all columns at once; what is left to do waits for the whole batch.

        The share on a category needs no column: Σ_i Σ_j α_ij [j is of it] is a sum over what the keys receive.
        """
        site, (rows,) = call.site, self.measured(call, batch)
        entropy, counted = rows["entropy"], self._counted(call, batch.queries(site), near=rows.at is not None)
        columns = [each[..., None] for each in (entropy, entropy, rows["peak"], rows["peak_among"])]
        total = (torch.cat([*columns, *([] if rows.at is None else [rows.at])], -1) * counted.weights).sum(2)
        self._waiting.append(_Sums(site, total, counted.counts, rows["received"], batch.keys(site)))

    def _counted(self, call: Call, asking: Tokens, *, near: bool) -> _Counts:
        """Which queries count; made once for all sites of a batch that have the same mask."""
        scores = call.scores
        alike = (near, scores.causal, scores.shape[3], scores.sink is None, call.query.dtype)
        for one in self._counts:
            if one.asking is asking and one.allowed is scores.allowed and one.alike == alike:
                return one
        visible, query = call.visible_keys[:, 0], asking.mask
        counted = [query, query & (visible > 1), query, asking.ordinary]
        if near:
            counted += [has_neighbour(query, offset) for offset in OFFSETS.values()]
        wide = torch.promote_types(call.query.dtype, torch.float32)
        weights = torch.stack(counted, -1).to(wide)
        counts = weights.sum(1)
        weights[..., _BY_ROW.index("entropy_normalised")] /= largest_entropy(visible, wide)
        made = _Counts(asking, scores.allowed, alike, weights[:, None], counts)
        self._counts.append(made)
        return made

    def commit(self) -> None:
        """Means of each text from the sums of a batch, into the moments."""
        waiting, self._waiting, self._counts = self._waiting, [], []
        alike: dict[tuple[object, ...], list[_Sums]] = {}
        for one in waiting:
            alike.setdefault((id(one.read), one.total.shape, one.received.shape), []).append(one)
        for some in alike.values():
            self._take(some)
        super().commit()

    def _take(self, some: "Sequence[_Sums]") -> None:
        """Sums of the same tokens at several sites: [site text head column]."""
        sites, read = [one.site for one in some], some[0].read
        total, counts = torch.stack([one.total for one in some]), torch.stack([one.counts for one in some])
        received = torch.stack([one.received for one in some])
        mean, weight = total / counts.clamp(min=1)[:, :, None], self._weight(counts)[:, :, None]
        named = {name: (mean[..., column], weight[..., column]) for column, name in enumerate(_BY_ROW)}
        queries, of_rows = counts[..., :1], weight[..., :1]
        columns = torch.cat([read.kinds(self.kinds), read.sinks[..., None]], -1).double()
        shares = (received.double() @ columns) / queries.clamp(min=1)[..., None]
        sink = received.amax(-1) / queries
        special = (shares[..., -1], of_rows[..., 0])
        self.moments.add_sites(sites, **named, special=special, sink=(sink, of_rows[..., 0]))
        near, near_weight = mean[..., len(_BY_ROW) :], weight[..., len(_BY_ROW) :]
        if not near.shape[-1]:
            near = mean.new_zeros(*mean.shape[:-1], len(OFFSETS))
            near_weight = near[..., :1, :]
        mass = torch.cat([shares[..., :-1], near.double()], -1)
        of_kinds = of_rows * self._present(read)[:, None]
        self.masses.add_sites(sites, mass=(mass, torch.cat([of_kinds, near_weight], -1)))

    def _present(self, read: Tokens) -> Bool[Tensor, "text kind"]:
        """A text without an opening or closing token has no mass on such; one without punctuation has a mass of 0."""
        present = read.kinds(self.kinds).any(1)
        for name in ("punctuation", "period_comma", "other"):
            present[:, CATEGORIES.index(name)] = True
        return present

    def forget(self, states: Mapping[str, Tensor] | None = None) -> None:
        super().forget(states)
        self._waiting, self._counts = [], []

    def _weight(self, counts: Tensor) -> Tensor:
        return counts if self.by == "token" else (counts > 0).to(counts.dtype)

    def compute(self) -> Result:
        """Entropy, peak, confidence, sink, and mass by category."""
        variables = self.moments.cells() | self.masses.cells()
        for name, text in _DESCRIPTIONS.items():
            variables[name].attrs["description"] = text
        return self.result(variables, self.masses.labels())


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
