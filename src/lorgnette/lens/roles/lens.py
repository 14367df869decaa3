"""What each head is for: positional, syntactic, rare words, special tokens, punctuation, repeats, broad, dead."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site, Tap
from lorgnette.attending.sweep import Measured, Wanted, Watcher
from lorgnette.attending.words import between_words
from lorgnette.constraints import Interval, Share
from lorgnette.contributions.gated import ArrivingNorms
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer import transformed_norms_of
from lorgnette.lens.base import Lens
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.moments import Moments
from lorgnette.lens.relations.lens import PARTS, FoundPairs, in_parts, relation_names
from lorgnette.lens.roles.formulas import (
    PairMasses,
    after_same_word,
    even_shares,
    mean_of_queries,
    neighbours_by_others,
    peak_offsets,
    peaks_received,
    rare_words,
    same_word,
)
from lorgnette.lens.roles.labels import CONTROLLED, labelled
from lorgnette.lens.roles.parsing import CONTROLS, PARSED, over_control
from lorgnette.lens.roles.piece_counts import PieceCounts, rank_table
from lorgnette.lens.weights.means import OFFSETS as NEIGHBOURS
from lorgnette.lens.weights.means import has_neighbour
from lorgnette.results import Result
from lorgnette.statistics.entropy import normalised_entropy
from lorgnette.subject import Subject
from lorgnette.syntax.gold_trees import parsed_sites, word_attention
from lorgnette.syntax.relations import control_hits, peaks, relation_hits
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.example import Example
from lorgnette.texts.frequency import FrequencyRanks, counted
from lorgnette.texts.shuffled import shuffled_words
from lorgnette.types import ModelOutput

REACH = 5
SHIFTS = tuple(range(-REACH, REACH + 1))
"""Offsets at which a positional head may read."""
NUMBERS = (
    "confidence", "peak", "broad", "special", "punctuation", "last", "norm", *NEIGHBOURS, "same_word", "induction",
    "rarest", "rare", "rare_chance",
)  # fmt: skip


class Parsing(Tap):
    """Hands the calls of the control to the lens."""

    def __init__(self, lens: "Roles", batch: Batch) -> None:
        self.lens, self.batch = lens, batch

    def see(self, call: Call) -> None:
        self.lens.parse_control(call, self.batch)


class Roles(CentredLens):
    """The numbers and labels of every head, chosen on one part of the corpus and tested on the other.

    Labels and their thresholds are in `lorgnette.lens.roles.labels.RULES`; a head may have several, or none. Shares
    are over the queries that are words (no special tokens) and for which the question makes sense, pooled over the
    part, with standard errors over texts. With a treebank a head is also tested as a parser, by the `relations` lens,
    of which this is one. Ranks of rare words are counted in the corpus, which `look` goes through once before, or
    `FrequencyRanks` by word-piece id. `centred` asks whether a head is dead without the mean of its values over the
    corpus, a constant that could as well be a bias (docs/gauge.md); all other roles are about weights.

    What it does not tell you: whether the head matters (see `importance`). A label only describes where the attention
    goes.
    """

    name: ClassVar[str] = "roles"
    summary: ClassVar[str] = "roles of heads: positional, syntactic, rare words, special tokens, broad, dead …"
    reads = frozenset({"cpu"})

    def __init__(
        self,
        ranks: Literal["corpus"] | FrequencyRanks[int] = "corpus",
        *,
        relations: Sequence[str] | None = None,
        development: Share = 0.5,
        least: Annotated[int, Interval(1)] = 20,
        centred: bool = False,
    ) -> None:
        super().__init__(centred)
        self.relations, self.development = relation_names(relations), development
        self.source, self.least = ranks, least
        self.ranks: tuple[Tensor, Tensor] | None = None

    def needs(self) -> Sequence[Lens]:
        counts = (PieceCounts(),) if self.ranks is None and self.source == "corpus" else ()
        return (*counts, *super().needs())

    def take(self, results: Mapping[str, Result]) -> None:
        if self.centred:
            super().take(results)
        if "piece_counts" not in results:
            return
        counts = results["piece_counts"].data["pieces"].values
        both = [rank_table(counted(dict(enumerate(side.tolist())), "corpus"), len(side)) for side in counts]
        self.ranks = (both[0], both[1])

    def allocate(self, subject: Subject) -> None:
        self.parsing: tuple[Site, ...] = parsed_sites(self.sites)
        if self.parsing:
            self.found: FoundPairs = FoundPairs(self, self.relations, self.development, words_with_trees)
            by_way = {axes.RELATION: self.relations, axes.WAY: PARSED, axes.PART: PARTS}
            self.of_parser: Moments = Moments(self, [over_control(name) for name in CONTROLS], by_way)
            self.sums("rerun", 2)  # texts and tokens
        self.projections: SiteWeights = SiteWeights(subject, layer_norm=False, gated=True)
        by_part = {axes.PART: PARTS}
        self.of_roles: Moments = Moments(self, NUMBERS, by_part)
        self.of_excess: Moments = Moments(self, [over_control(name) for name in CONTROLLED], by_part)
        at_offsets = ("peak_at", over_control("peak_at"))
        self.of_offsets_read: Moments = Moments(self, at_offsets, {axes.OFFSET: SHIFTS, **by_part})
        if isinstance(self.source, FrequencyRanks):
            table = rank_table(self.source, max(len(subject.tokenizer), self.source.last + 1))
            self.ranks = (table, table)

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site in self.parsing and any(example.heads is not None for example in batch.examples):
            self._add_pairs(call, batch)
        parts, controls = self._parts(call, batch), self._controls(call, batch)
        values = torch.cat([value.expand(-1, call.query.shape[1], -1) for value, _ in parts], -1)
        weights = torch.cat([weight for _, weight in parts], -1)[:, None]
        mine = in_parts(batch, self.development).to(weights)[:, None, None]  # [text 1 1 part]
        excess = values - controls
        values, excess = (each[..., None].expand(*each.shape, len(PARTS)) for each in (values, excess))
        weights = weights[..., None] * mine
        columns = {name: number for number, name in enumerate(NUMBERS)}
        self.of_roles.add(site, **{name: (values[:, :, n], weights[:, :, n]) for name, n in columns.items()})
        over = {over_control(name): (excess[:, :, columns[name]], weights[:, :, columns[name]]) for name in CONTROLLED}
        self.of_excess.add(site, **over)
        offsets = slice(len(NUMBERS), None)
        read_at, over_at = ((each[:, :, offsets], weights[:, :, offsets]) for each in (values, excess))
        self.of_offsets_read.add(site, **{"peak_at": read_at, over_control("peak_at"): over_at})

    def _add_pairs(self, call: Call, batch: Batch) -> None:
        """The head as a parser, and how often other words peak at the same goals."""
        found = self.found
        rows, shares = found.add(call, batch)
        visible = call.scores.visible_keys().any(1, keepdim=True).float()
        between = between_words(visible, batch.source.word, found.trees.visible.shape[1])[0][:, 0].cpu() > 0
        between &= found.trees.visible[:, :, None] & found.trees.visible[:, None]
        others = found.by_relation(control_hits(rows, between, found.trees.governor))
        self._intact(batch)[call.site] = shares[..., : len(PARSED)]
        self._over_control(call.site, batch, "others", others)

    def _intact(self, batch: Batch) -> "dict[Site, Float[Tensor, 'text head relation way']]":
        """By site, what each head finds in the texts before they are shuffled; kept for the batch."""
        return batch.shared.setdefault(f"roles {id(self)}", {})

    def _over_control(
        self, site: Site, batch: Batch, control: str, shares: Float[Tensor, "text head relation way"]
    ) -> None:
        """Add the excess of each head over its control."""
        excess = (self._intact(batch)[site] - shares)[..., None].expand(*shares.shape, len(PARTS))
        self.of_parser.add(site, **{over_control(control): (excess, self.found.weights[:, None])})

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """The control: the same texts with their words shuffled, where there are trees that heads could find."""
        if intact := self._intact(batch):
            shuffled = shuffled_words(batch)
            shuffled.shared[f"roles {id(self)}"] = intact
            with torch.no_grad(), self.subject.tapped(Parsing(self, shuffled)):
                self.subject.run(shuffled, return_dict=True)
            lengths = batch.lengths + (0 if batch.target is None else batch.target.lengths)
            self.rerun += torch.tensor([len(batch), int(lengths.sum())]).to(self.rerun)

    def parse_control(self, call: Call, batch: Batch) -> None:
        """What the head finds in the shuffled text, whose words keep their trees."""
        if call.site in self._intact(batch):
            trees = self.found.trees
            rows = peaks(word_attention(call, batch, trees), trees.visible[:, None])
            hits = relation_hits(rows, rows, trees.governor)[..., : len(PARSED)]
            self._over_control(call.site, batch, "shuffled", self.found.by_relation(hits))

    def _parts(
        self, call: Call, batch: Batch
    ) -> list[tuple[Float[Tensor, "text #head column"], Float[Tensor, "text column"]]]:
        """Means over the queries of each text and their numbers, in the order of the columns."""
        site = call.site
        queries, keys = batch.queries(site), batch.keys(site)
        (rows,) = self.measured(call, batch)
        shifts = peak_offsets(rows["peak_position"], queries.ordinary, keys.mask, SHIFTS)
        if site.kind != "self":
            shifts = (shifts[0], torch.zeros_like(shifts[1]))
        repeats = [
            mean_of_queries(each.of_heads()[..., None], each.pairs.any(-1)[..., None])
            for each in self._repeated(call, batch)
        ]
        return [
            *self._simple(call, rows, queries, keys),
            *repeats,
            self._rare(site, rows["received"], queries.ordinary, keys, batch),
            mean_of_queries(shifts[0], shifts[1]),
        ]

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        site = call.site
        queries, keys = batch.queries(site), batch.keys(site)
        kinds = _kinds(keys)
        arriving = self._arriving(call, queries)
        if arriving is None:
            norms = transformed_norms_of(self.centring(call), self.projections[site])
            features = torch.cat([kinds[:, None].expand(-1, norms.shape[1], -1, -1).to(norms), norms[..., None]], -1)
        else:
            features = kinds
        watchers: list[Watcher] = [*self._repeated(call, batch), *([] if arriving is None else [arriving])]

        def block(weights: Tensor, texts: slice, rows: slice) -> None:
            for watcher in watchers:
                watcher(weights, texts, rows)

        wanted = Wanted(
            features=features.to(call.query.dtype),
            entropy=True,
            peak=True,
            positions=True,
            among=keys.ordinary,
            offsets=tuple(NEIGHBOURS.values()) if site.kind == "self" else (),
            received=queries.ordinary,
            block=block,
        )
        return (wanted,)

    def _arriving(self, call: Call, queries: Tokens) -> ArrivingNorms | None:
        """The norms behind a gate, which is another vector for each query; None without one."""
        gate = self.projections.gate_of(call)
        if gate is None:
            return None
        maps = self.projections[call.site]
        return call.once(
            f"arriving {id(self)}", lambda: ArrivingNorms(self.centring(call), maps, gate, queries.mask.to(maps.wide))
        )

    @staticmethod
    def _visible(call: Call) -> Bool[Tensor, "text query key"]:
        return call.once("visible keys", lambda: call.scores.visible_keys().any(1))

    def _repeated(self, call: Call, batch: Batch) -> list[PairMasses]:
        """The weight on the same word elsewhere, and on what followed it before: summed while rows are swept."""

        def made() -> list[PairMasses]:
            wide = torch.promote_types(call.query.dtype, torch.float32)
            pairs = _repeats(call, batch.queries(call.site), batch.keys(call.site), self._visible(call))
            return [PairMasses(each, call.query.shape[1], wide) for each in pairs]

        return call.once(f"roles {id(self)}", made)

    def _controls(self, call: Call, batch: Batch) -> Float[Tensor, "text #head column"]:
        """The control of each number: its value by chance, as a mean over the same queries; 0 without a control.

        Kinds of key: a row that gives all keys as much. Rare words: ranks permuted. The rest, what a word gives to one
        other token: what the other words give to that token.
        """
        site = call.site
        queries, keys = batch.queries(site), batch.keys(site)
        (rows,) = self.measured(call, batch)
        word, heads = queries.ordinary, call.query.shape[1]
        out = rows["entropy"].new_zeros(len(batch), heads, len(NUMBERS) + len(SHIFTS))
        visible = self._visible(call)
        even = even_shares(_kinds(keys), visible[:, :1] if call.scores.rows_alike else visible)
        counted = torch.stack([queries.mask, word, word], -1)
        query_counts = call.scores.query_counts(word)
        first = NUMBERS.index("special")
        out[..., first : first + 3] = mean_of_queries(even[:, None], counted)[0]
        for name, each in zip(("same_word", "induction"), self._repeated(call, batch), strict=True):
            control = each.by_others(rows["received"], query_counts)[..., None]
            out[..., [NUMBERS.index(name)]] = mean_of_queries(control, each.pairs.any(-1)[..., None])[0].to(out)
        out[..., NUMBERS.index("rare")] = self._rare(site, rows["received"], word, keys, batch)[0][..., 2]
        if site.kind == "self":
            peak = rows["peak_position"]
            hits, possible = peak_offsets(peak, word, keys.mask, SHIFTS)
            counts = peaks_received(peak, word, keys.mask.shape[1])
            control = neighbours_by_others(hits.double(), counts, visible, query_counts, SHIFTS)
            out[..., len(NUMBERS) :] = mean_of_queries(control, possible)[0]
            offsets = tuple(NEIGHBOURS.values())
            control = neighbours_by_others(rows["at"], rows["received"], visible, query_counts, offsets)
            at = NUMBERS.index(next(iter(NEIGHBOURS)))
            out[..., at : at + len(offsets)] = mean_of_queries(control, self._having_neighbours(queries))[0]
        return out

    @staticmethod
    def _having_neighbours(queries: Tokens) -> Bool[Tensor, "text query offset"]:
        each = [queries.ordinary & has_neighbour(queries.mask, o) for o in NEIGHBOURS.values()]
        return torch.stack(each, -1)

    def _simple(self, call: Call, rows: Measured, queries: Tokens, keys: Tokens) -> list[tuple[Tensor, Tensor]]:
        """Confidence, peak, entropy, masses by kind of key, norm, neighbours: what `weights` and `norms` measure."""
        offsets, word = rows.at is not None, queries.ordinary
        visible = call.visible_keys[:, 0]
        normalised = normalised_entropy(rows["entropy"], visible[:, None].expand_as(rows["entropy"]))
        each = [rows["peak_among"], rows["peak"], normalised]
        # Weight on special tokens is what the lens `weights` measures: over all queries, and texts count alike.
        counted = torch.stack([word, word, word & (visible > 1), queries.mask, *(word,) * 3], -1)
        at = rows["at"] if offsets else normalised.new_zeros(*normalised.shape, len(NEIGHBOURS))
        arriving = self._arriving(call, queries)
        average = rows["average"]
        if arriving is not None:
            average = torch.cat([average, arriving.of_queries[..., None].to(average)], -1)
        means, counts = mean_of_queries(torch.cat([torch.stack(each, -1), average], -1), counted)
        at_special = NUMBERS.index("special")
        counts[:, at_special] = (counts[:, at_special] > 0).to(counts.dtype)
        return [
            (means, counts),
            mean_of_queries(at, self._having_neighbours(queries) & offsets),
        ]

    def _rare(
        self,
        site: Site,
        received: Float[Tensor, "text head key"],
        word: Bool[Tensor, "text query"],
        keys: Tokens,
        batch: Batch,
    ) -> tuple[Tensor, Tensor]:
        """Whether the most read piece of a text is its rarest, or one of the two rarest, and the chance of that."""
        texts, heads = received.shape[:2]
        if self.ranks is None or site.stack == "pooler":
            return received.new_zeros(texts, heads, 3), received.new_zeros(texts, 3)
        side = int(keys is batch.target)
        rank = self.ranks[side].to(keys.ids.device)[keys.ids.clamp(max=len(self.ranks[side]) - 1)]
        rarest, rare, chance, counts = rare_words(received, rank, keys.ordinary)
        values = torch.stack([rarest.float(), rare.float(), chance[:, None].expand(-1, heads).float()], -1)
        return values, (counts & word.any(-1)).float()[:, None].expand(-1, 3)

    def compute(self) -> Result:
        """Numbers with intervals by part, labels, and how well both parts agree."""
        parsed = self.found.result().data if self.parsing and bool(self.pairs.any()) else None
        result = self.result(labelled(self, parsed))
        source = (
            self.source.source if isinstance(self.source, FrequencyRanks) else "tokens counted in the corpus itself"
        )
        result.data.attrs |= {"ranks": source, "development": self.development, "least": self.least}
        texts, tokens = (int(count) for count in self.rerun) if self.parsing else (0, 0)
        result.data.attrs |= {"control_texts": texts, "control_tokens": tokens}
        if parsed is not None:
            result.data.attrs |= parsed.attrs
        return self.centring.mark(result)


def _kinds(keys: Tokens) -> Bool[Tensor, "text key kind"]:
    """Special tokens, punctuation, the last token: the kinds of key that roles ask for."""
    return torch.stack([keys.sinks, keys.categories["punctuation"], keys.categories["last"]], -1)


def _repeats(
    call: Call, queries: Tokens, keys: Tokens, visible: Bool[Tensor, "text query key"]
) -> list[Bool[Tensor, "text query key"]]:
    """Pairs of a query with the same word elsewhere, and with what followed it before, where it may see them."""
    words = queries.ordinary[:, :, None] & keys.ordinary[:, None]
    both = [same_word(queries.ids, keys.ids, itself=call.site.kind != "self")]
    both.append(after_same_word(queries.ids) if call.site.kind == "self" else torch.zeros_like(both[0]))
    return [pairs & words & visible for pairs in both]


def words_with_trees(example: Example) -> Example:
    """The example; without a tree, it has no words to be parsed."""
    if example.heads is not None:
        return example
    return replace(example, words=(), heads=(), relations=(), tags={}, rationale=None)
