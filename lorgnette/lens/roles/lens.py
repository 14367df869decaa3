"""What each head is for: positional, syntactic, rare words, special tokens, punctuation, repeats, broad, dead."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Measured, Wanted
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.shared import transformed_norms_of
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.relations.lens import PARTS, Relations, in_parts
from lorgnette.lens.roles.formulas import PairMasses, after_same_word, peak_offsets, rare_words, same_word
from lorgnette.lens.roles.labels import labelled
from lorgnette.lens.weights.lens import OFFSETS as NEIGHBOURS
from lorgnette.lens.weights.lens import has_neighbour
from lorgnette.results import Result
from lorgnette.statistics.entropy import normalised_entropy
from lorgnette.subject import Subject
from lorgnette.syntax.gold_trees import parsed_sites
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.frequency import FrequencyRanks, counted

REACH = 5
SHIFTS = tuple(range(-REACH, REACH + 1))
"""Offsets at which a positional head may read."""
NUMBERS = (
    "confidence", "peak", "broad", "special", "punctuation", "last", "norm", *NEIGHBOURS, "same_word", "induction",
    "rarest", "rare", "rare_chance",
)  # fmt: skip


class PieceCounts(Lens):
    """How often each word piece stands in the corpus, on either side; `roles` looks with it first."""

    name: ClassVar[str] = "piece_counts"
    tokens_only: ClassVar[bool] = True
    pieces: Tensor

    def allocate(self, subject: Subject) -> None:
        vocabulary = max(len(subject.tokenizer), int(getattr(subject.model.config, "vocab_size", 0) or 0))
        self.sums("pieces", 2, vocabulary)

    def finish(self, batch: Batch, outputs: Any) -> None:
        for side, tokens in enumerate((batch.source, batch.target)):
            if tokens is not None:
                ids = tokens.ids[tokens.mask & ~tokens.special].to(self.pieces.device)
                self.pieces[side] += torch.bincount(ids, minlength=self.pieces.shape[1])

    def compute(self) -> Result:
        counts = self.pieces.cpu().numpy().astype("int64")
        return self.result({"pieces": xr.DataArray(counts, dims=("side", "piece"))})


class Roles(Relations):
    """The numbers and labels of every head, chosen on one part of the corpus and tested on the other.

    Labels and their thresholds are in `lorgnette.lens.roles.labels.RULES`; a head may have several, or none. Shares
    are over the queries that are words (no special tokens) and for which the question makes sense, pooled over the
    part, with standard errors over texts. With a treebank a head is also tested as a parser, by the `relations` lens,
    of which this is one. Ranks of rare words are counted in the corpus, which `look` goes through once before, or
    `FrequencyRanks` by word-piece id.

    What it does not tell you: what the model does with it. A label is a description of where the weight goes;
    `importance` says whether the head matters.
    """

    least: int

    name: ClassVar[str] = "roles"
    summary: ClassVar[str] = "what each head is for: positional, syntactic, rare words, special tokens, broad, dead …"

    def __init__(
        self,
        ranks: "str | FrequencyRanks[int]" = "corpus",
        *,
        relations: Sequence[str] | None = None,
        development: float = 0.5,
        least: int = 20,
    ) -> None:
        super().__init__(relations, development=development)
        if isinstance(ranks, str) and ranks != "corpus":
            raise UserError(
                f"The 'ranks' parameter of Roles must be 'corpus', or FrequencyRanks by piece id. Got {ranks!r}."
            )
        self.source, self.least = ranks, least
        self.ranks: tuple[Tensor, Tensor] | None = None
        self.repeats: list[tuple[Tensor, PairMasses]] = []

    def needs(self) -> Sequence[Lens]:
        return (PieceCounts(),) if self.ranks is None and self.source == "corpus" else ()

    def take(self, results: Mapping[str, Result]) -> None:
        counts = results["piece_counts"].data["pieces"].values
        both = [_rank_table(counted(dict(enumerate(side.tolist())), "corpus"), len(side)) for side in counts]
        self.ranks = (both[0], both[1])

    def allocate(self, subject: Subject) -> None:
        self.parsing: tuple[Site, ...] = parsed_sites(self.sites)
        if self.parsing:
            super().allocate(subject)
        self.projections: SiteWeights = SiteWeights(subject, layer_norm=False)
        by_part = {axes.PART: PARTS}
        self.of_roles: Moments = Moments(self, NUMBERS, by_part)
        self.of_offsets_read: Moments = Moments(self, "peak_at", {axes.OFFSET: SHIFTS, **by_part})
        if isinstance(self.source, FrequencyRanks):
            table = _rank_table(self.source, max(len(subject.tokenizer), self.source.last + 1))
            self.ranks = (table, table)

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site in self.parsing and any(example.heads is not None for example in batch.examples):
            super().update(call, batch)
        parts = self._parts(call, batch)
        values = torch.cat([value.expand(-1, call.query.shape[1], -1) for value, _ in parts], -1)
        weights = torch.cat([weight for _, weight in parts], -1)[:, None]
        mine = in_parts(batch, self.development).to(weights)[:, None, None]  # [text 1 1 part]
        values, weights = values[..., None].expand(*values.shape, len(PARTS)), weights[..., None] * mine
        columns = zip(NUMBERS, values.unbind(2), weights.unbind(2), strict=False)
        self.of_roles.add(site, **{name: (value, weight) for name, value, weight in columns})
        self.of_offsets_read.add(site, peak_at=(values[:, :, len(NUMBERS) :], weights[:, :, len(NUMBERS) :]))

    def _begin(self, batch: Batch) -> None:
        # A text without a tree has no words to be parsed.
        examples = (
            e if e.heads is not None else replace(e, words=(), heads=(), relations=(), tags={}, rationale=None)
            for e in batch.examples
        )
        super()._begin(replace(batch, examples=tuple(examples)))
        self.batch = batch

    def _parts(
        self, call: Call, batch: Batch
    ) -> list[tuple[Float[Tensor, "text #head column"], Float[Tensor, "text column"]]]:
        """Means over the queries of each text and their numbers, in the order of the columns."""
        site = call.site
        asking, read = batch.queries(site), batch.keys(site)
        (rows,) = self.measured(call, batch)
        shifts = peak_offsets(rows["peak_position"], asking.ordinary, read.mask, SHIFTS)
        if site.kind != "self":
            shifts = (shifts[0], torch.zeros_like(shifts[1]))
        repeats = [_mean(masses.of_heads()[..., None], pairs.any(-1)[..., None]) for pairs, masses in self.repeats]
        self.repeats = []
        return [
            *self._simple(call, rows, asking, read),
            *repeats,
            self._rare(site, rows["received"], asking.ordinary, read, batch),
            _mean(shifts[0], shifts[1]),
        ]

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        site = call.site
        asking, read = batch.queries(site), batch.keys(site)
        kinds = torch.stack([read.sinks, read.categories["punctuation"], read.categories["last"]], -1)
        norms = transformed_norms_of(call, self.projections[site])
        features = torch.cat([kinds[:, None].expand(-1, norms.shape[1], -1, -1).to(norms), norms[..., None]], -1)
        wide = torch.promote_types(call.query.dtype, torch.float32)
        self.repeats = [(p, PairMasses(p, call.query.shape[1], wide)) for p in _repeats(call, asking, read)]

        def block(weights: Tensor, texts: slice, rows: slice) -> None:
            for _, masses in self.repeats:
                masses(weights, texts, rows)

        wanted = Wanted(
            features=features.to(call.query.dtype),
            entropy=True,
            peak=True,
            positions=True,
            among=read.ordinary,
            offsets=tuple(NEIGHBOURS.values()) if site.kind == "self" else (),
            received=asking.ordinary,
            block=block,
        )
        return (wanted,)

    def _simple(self, call: Call, rows: Measured, asking: Tokens, read: Tokens) -> list[tuple[Tensor, Tensor]]:
        """Confidence, peak, entropy, masses by kind of key, norm, neighbours: what `weights` and `norms` measure."""
        offsets, word = rows.at is not None, asking.ordinary
        seen = call.seen_keys[:, 0]
        normalised = normalised_entropy(rows["entropy"], seen[:, None].expand_as(rows["entropy"]))
        each = [rows["peak_among"], rows["peak"], normalised]
        # Weight on special tokens is what the lens `weights` measures: over all queries, and texts count alike.
        asked = torch.stack([word, word, word & (seen > 1), asking.mask, *(word,) * 3], -1)
        there = [word & has_neighbour(asking.mask, o) & offsets for o in NEIGHBOURS.values()]
        at = rows["at"] if offsets else normalised.new_zeros(*normalised.shape, len(NEIGHBOURS))
        means, counts = _mean(torch.cat([torch.stack(each, -1), rows["average"]], -1), asked)
        at_special = NUMBERS.index("special")
        counts[:, at_special] = (counts[:, at_special] > 0).to(counts.dtype)
        return [
            (means, counts),
            _mean(at, torch.stack(there, -1)),
        ]

    def _rare(
        self,
        site: Site,
        received: Float[Tensor, "text head key"],
        word: Bool[Tensor, "text query"],
        read: Tokens,
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:
        """Whether the most read piece of a text is its rarest, or one of the two rarest, and the chance of that."""
        texts, heads = received.shape[:2]
        if self.ranks is None or site.stack == "pooler":
            return received.new_zeros(texts, heads, 3), received.new_zeros(texts, 3)
        side = int(read is batch.target)
        rank = self.ranks[side].to(read.ids.device)[read.ids.clamp(max=len(self.ranks[side]) - 1)]
        rarest, rare, chance, counts = rare_words(received, rank, read.ordinary)
        values = torch.stack([rarest.float(), rare.float(), chance[:, None].expand(-1, heads).float()], -1)
        return values, (counts & word.any(-1)).float()[:, None].expand(-1, 3)

    def forget(self, kept: Mapping[str, Tensor] | None = None) -> None:
        super().forget(kept)
        self.repeats = []

    def compute(self) -> Result:
        """Numbers with intervals by part, labels, and how well both parts agree."""
        parsed = Relations.compute(self).data if self.parsing and bool(self.pairs.any()) else None
        result = self.result(labelled(self, parsed))
        source = (
            self.source.source if isinstance(self.source, FrequencyRanks) else "pieces counted in the corpus itself"
        )
        result.data.attrs |= {"ranks": source, "development": self.development, "least": self.least}
        if parsed is not None:
            result.data.attrs |= parsed.attrs
        return result


def _repeats(call: Call, asking: Tokens, read: Tokens) -> list[Bool[Tensor, "text query key"]]:
    """Pairs of a query with the same word elsewhere, and with what followed it before, where it may see them."""
    visible = call.scores.visible_keys().any(1)
    words = asking.ordinary[:, :, None] & read.ordinary[:, None]
    both = [same_word(asking.ids, read.ids, itself=call.site.kind != "self")]
    both.append(after_same_word(asking.ids) if call.site.kind == "self" else torch.zeros_like(both[0]))
    return [pairs & words & visible for pairs in both]


def _rank_table(ranks: FrequencyRanks[int], size: int) -> Float[Tensor, " piece"]:
    return torch.tensor([ranks[piece] for piece in range(size)], dtype=torch.float32)


def _mean(
    values: Tensor, asked: Bool[Tensor, "text query column"]
) -> tuple[Float[Tensor, "text head column"], Float[Tensor, "text column"]]:
    """[text head query column] → mean over the queries that count, and how many they are."""
    wide = values if values.is_floating_point() and values.dtype.itemsize >= 4 else values.double()
    counts = asked.sum(1).to(wide.dtype)
    return (wide * asked[:, None]).sum(2) / counts.clamp(min=1)[:, None], counts
