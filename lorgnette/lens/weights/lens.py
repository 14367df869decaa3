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
from lorgnette.statistics.entropy import normalised_entropy
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES

OFFSETS = {"self": 0, "previous": -1, "next": 1}
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
    """What a batch gave at one site: sums over queries, how many were summed, and the most that a key receives."""

    site: Site
    total: Float[Tensor, "text head column"]
    counts: Float[Tensor, "text column"]
    received: Float[Tensor, "text head"]
    read: Tokens


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
        self._made: dict[int, tuple[Tokens, Tensor]] = {}

    def allocate(self, subject: Subject) -> None:
        self.moments = Moments(self, ("entropy", "entropy_normalised", "peak", "confidence", "sink", "special"))
        self.masses: Moments = Moments(self, "mass", {axes.CATEGORY: (*self.kinds, *OFFSETS)})

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        asking, read = batch.queries(call.site), batch.keys(call.site)
        wanted = Wanted(
            features=self._columns(read),
            entropy=True,
            peak=True,
            among=read.ordinary,
            offsets=tuple(OFFSETS.values()) if call.site.kind == "self" else (),
            received=asking.mask,
        )
        return (wanted,)

    def _columns(self, read: Tokens) -> Bool[Tensor, "text key column"]:
        """Kinds of key, and behind them where sinks are; made once for a batch."""
        cached = self._made.get(id(read))
        if cached is None or cached[0] is not read:
            self._made = {id(read): (read, torch.cat([read.kinds(self.kinds), read.sinks[..., None]], -1))}
        return self._made[id(read)][1]

    def update(self, call: Call, batch: Batch) -> None:
        """Sums over the queries of each text, of all columns at once; what is left to do waits for the whole batch."""
        site, (rows,) = call.site, self.measured(call, batch)
        asking, read = batch.queries(site), batch.keys(site)
        visible = call.visible_keys[:, 0]
        query, word, several = asking.mask, asking.ordinary, asking.mask & (visible > 1)
        entropy = rows["entropy"]
        normalised = normalised_entropy(entropy, visible[:, None].expand_as(entropy))
        columns = [entropy, normalised, rows["peak"], rows["peak_among"], *rows["average"].unbind(-1)]
        counted = [query, several, query, word, *[query] * (len(self.kinds) + 1)]
        if rows.at is not None:
            columns += rows.at.unbind(-1)
            counted += [has_neighbour(query, offset) for offset in OFFSETS.values()]
        values, weights = torch.stack(columns, -1), torch.stack(counted, -1).to(entropy.dtype)
        total, counts = (values * weights[:, None]).sum(2), weights.sum(1)
        self._waiting.append(_Sums(site, total, counts, rows["received"].amax(-1), read))

    def commit(self) -> None:
        """Means of each text from the sums of a batch, into the moments."""
        waiting, self._waiting, self._made = self._waiting, [], {}
        alike: dict[tuple[object, ...], list[_Sums]] = {}
        for one in waiting:
            alike.setdefault((id(one.read), one.total.shape), []).append(one)
        for some in alike.values():
            self._take(some)
        super().commit()

    def _take(self, some: "Sequence[_Sums]") -> None:
        """Sums of the same tokens at several sites: [site text head column]."""
        sites, read = [one.site for one in some], some[0].read
        total, counts = torch.stack([one.total for one in some]), torch.stack([one.counts for one in some])
        received = torch.stack([one.received for one in some])
        mean, weight = total / counts.clamp(min=1)[:, :, None], self._weight(counts)[:, :, None]
        names = ("entropy", "entropy_normalised", "peak", "confidence")
        first = len(names)
        behind = first + len(self.kinds)
        sink = received / counts[..., :1]
        mass, mass_weight = self._masses(mean, weight, first, behind, read)
        for number, site in enumerate(sites):
            own, of = mean[number], weight[number]
            named = {name: (own[..., column], of[..., column]) for column, name in enumerate(names)}
            special = (own[..., behind], of[..., behind])
            self.moments.add(site, **named, special=special, sink=(sink[number], of[..., 0]))
            self.masses.add(site, mass=(mass[number], mass_weight[number]))

    def _masses(self, mean: Tensor, weight: Tensor, first: int, behind: int, read: Tokens) -> tuple[Tensor, Tensor]:
        """Mass per category, then per offset; a text without an opening or closing token has no such mass."""
        present = read.kinds(self.kinds).any(1)
        for name in ("punctuation", "period_comma", "other"):
            present[:, CATEGORIES.index(name)] = True
        averaged, weight_of_kinds = mean[..., first:behind], weight[..., first:behind] * present[:, None]
        near, near_weight = mean[..., behind + 1 :], weight[..., behind + 1 :]
        if not near.shape[-1]:
            near = mean.new_zeros(*mean.shape[:-1], len(OFFSETS))
            near_weight = near[..., :1, :]
        return torch.cat([averaged, near], -1), torch.cat([weight_of_kinds, near_weight], -1)

    def forget(self, states: Mapping[str, Tensor] | None = None) -> None:
        super().forget(states)
        self._waiting, self._made = [], {}

    def _weight(self, counts: Tensor) -> Tensor:
        return counts if self.by == "token" else (counts > 0).to(counts.dtype)

    def compute(self) -> Result:
        """Entropy, peak, confidence, sink, and mass by category."""
        variables = self.moments.arrays() | self.masses.arrays()
        for name, text in _DESCRIPTIONS.items():
            variables[name].attrs["description"] = text
        return self.result(variables)


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
