"""Which heads track which dependency relations; baseline: the best fixed offset."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch
import xarray as xr
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.constraints import Share
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments, statistics
from lorgnette.lens.pairs import MOST_CELLS
from lorgnette.lens.parts import OncePerBatch
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.statistics.hash_sample import NameSet
from lorgnette.subject import Subject
from lorgnette.syntax.gold_trees import GoldTrees, sites_between_words, word_attention
from lorgnette.syntax.relation_names import ALL, SUBTYPES, UNIVERSAL, membership
from lorgnette.syntax.relations import WAYS, peaks, relation_hits
from lorgnette.texts.annotated import share
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("development", "held_out")
REACH = 32
"""Offsets up to this far are tried as baselines."""
OFFSETS = tuple(o for o in range(-REACH, REACH + 1) if o)


def relation_names(relations: Sequence[str] | None, *, subtypes: bool = False) -> tuple[str, ...]:
    """The relations that are told apart: these or the universal ones, behind `all`."""
    names = tuple(relations) if relations is not None else UNIVERSAL + (SUBTYPES if subtypes else ())
    return (ALL, *(name for name in dict.fromkeys(names) if name != ALL))


class Relations(Lens):
    """Share of each relation's pairs that a head finds, by relation and way (Clark et al. 2019, §4.2).

        to_head        argmax_j α_dj = h     the dependent's row peaks at its head
        to_dependent   argmax_j α_hj = d     the head's row peaks at the dependent (Voita et al. 2019)
        read_by_head   argmax_i α_id = h     the head gives the dependent more than any other word does (Clark)

    α is between words (to: sum over pieces, from: mean); the word itself and special tokens are no candidates. Shares
    are over all pairs of the corpus, with standard errors over texts. A hash of its id assigns each text to the
    development or the held-out part: choose a head (or an offset) on one and report its accuracy on the other, as
    `best_heads` does. The baseline is the best fixed offset: the same word for both ends, so one for all ways.

    A relation without a colon takes in its subtypes. `all` is every pair but punctuation.

    What it does not tell you: whether the model uses what a head finds.
    """

    parsing: tuple[Site, ...]

    name: ClassVar[str] = "relations"
    summary: ClassVar[str] = "which heads track which dependency relations; baseline: best fixed offset (treebank)"
    reads = frozenset({"cpu"})

    def __init__(
        self, relations: Sequence[str] | None = None, *, subtypes: bool = False, development: Share = 0.5
    ) -> None:
        super().__init__()
        self.relations = relation_names(relations, subtypes=subtypes)
        self.development = development

    def allocate(self, subject: Subject) -> None:
        self.parsing = sites_between_words(self.sites, subject)
        self.found: FoundPairs = FoundPairs(self, self.relations, self.development)

    def update(self, call: Call, batch: Batch) -> None:
        if call.site in self.parsing:
            self.found.add(call, batch)

    def compute(self) -> Result:
        """`accuracy` by head, relation, way and part; `offset_accuracy` by relation, offset and part."""
        return self.found.result()


class FoundPairs:
    """Counts which pairs of a treebank each head finds, in the states of a lens: of `relations` and of `roles`."""

    members: Float[Tensor, "batch word relation"]
    trees: GoldTrees

    def __init__(
        self,
        lens: Lens,
        relations: tuple[str, ...],
        development: float,
        read: Callable[[Example], Example] | None = None,
    ) -> None:
        """`read`: what stands in for an example, so that a text without a tree has no words, say."""
        self.lens, self.relations, self.development, self.read = lens, relations, development, read
        self.begun: OncePerBatch[None] = OncePerBatch(lens, self._begin)
        by_way = {axes.RELATION: relations, axes.WAY: WAYS, axes.PART: PARTS}
        by_offset: dict[str, Sequence[str | int]] = {axes.RELATION: relations, axes.OFFSET: OFFSETS, axes.PART: PARTS}
        self.of_heads: Moments = Moments(lens, "accuracy", by_way)
        self.of_offsets: Moments = Moments(lens, "offset_accuracy", by_offset, at="corpus")
        self.paired: bool = len(lens.sites) * lens.heads <= MOST_CELLS
        if self.paired:  # Σ w² of the shares of a head and of an offset, of held-out texts
            lens.sums("products", len(lens.sites), lens.heads, len(relations), len(WAYS), len(OFFSETS))
        lens.sums("pairs", len(relations), len(PARTS))
        lens.sums("words", 3)  # seen, without a piece, in texts whose heads are no tree
        self.skipped: NameSet = NameSet(lens, "skipped_texts")

    def add(
        self, call: Call, batch: Batch
    ) -> tuple[Int[Tensor, "batch head word"], Float[Tensor, "batch head relation way"]]:
        """Add the shares of pairs that each head finds; return where its rows peak, and the shares of each text."""
        self.begun(batch)
        attention, words = word_attention(call, batch, self.trees), self.trees.visible[:, None]
        rows = peaks(attention, words)
        shares = self.by_relation(relation_hits(rows, peaks(attention.mT, words), self.trees.governor))
        values = shares[..., None].expand(*shares.shape, len(PARTS))
        self.of_heads.add(call.site, accuracy=(values, self.weights[:, None]))
        if self.paired:
            held_out = self.weights[:, :, 0, PARTS.index("held_out")]  # [text relation]
            mine, theirs = shares * held_out[:, None, :, None], self.by_offset * held_out[..., None]
            products = torch.einsum("thrw,tro->hrwo", mine, theirs)
            all_products = self.lens.states["products"]
            all_products[self.lens.position[call.site], : len(products)] += products.to(all_products)
        return rows, shares

    def by_relation(self, hits: Shaped[Tensor, "batch head word way"]) -> Float[Tensor, "batch head relation way"]:
        """Means over the pairs of each relation in each text."""
        # [batch head way word] · [batch word relation]
        shares = hits.mT.double() @ self.members[:, None] / self.counts.clamp(min=1)[:, None, None]
        return shares.mT

    def _begin(self, batch: Batch) -> None:
        """Prepare the gold trees that all layers of a batch share; add offsets and counts once for each batch."""
        batch = batch if self.read is None else replace(batch, examples=tuple(map(self.read, batch.examples)))
        self.trees = GoldTrees.of(batch)
        self.skipped.add(sorted(self.trees.broken))
        self.members = membership(self.trees.relations, self.relations, self.trees.visible.shape[1])
        self.members *= self.trees.pairs[..., None]
        self.counts: Tensor = self.members.sum(1)
        counted = self.counts[..., None] * in_parts(batch, self.development)[:, None]  # [batch relation part]
        self.weights: Tensor = counted[:, :, None]
        self.by_offset: Tensor = self._offset_shares()
        shares = self.by_offset[..., None]
        self.of_offsets.add(offset_accuracy=(shares.expand(*shares.shape[:-1], len(PARTS)), self.weights))
        self._count("pairs", counted.sum(0))
        lost = sum(len(e.words or ()) for e in batch.examples if e.id in self.trees.broken)
        words = torch.tensor([int(self.trees.visible.sum()), int(self.trees.unseen.sum()), lost])
        self._count("words", words)

    def _count(self, name: str, numbers: Tensor) -> None:
        state = self.lens.states[name]
        state += numbers.to(state)

    def _offset_shares(self) -> Float[Tensor, "batch relation offset"]:
        """For each text: share of a relation's pairs whose head stands at each offset from the dependent."""
        word = torch.arange(self.trees.governor.shape[1])
        offset = self.trees.governor - word
        at = (offset[..., None] == torch.tensor(OFFSETS)).double()
        return self.members.mT @ at / self.counts.clamp(min=1)[..., None]

    def result(self) -> Result:
        """`accuracy` by head, relation, way and part; `offset_accuracy` by relation, offset and part."""
        variables = self.of_heads.arrays() | self.of_offsets.arrays()
        if self.paired:
            variables |= self._gains()
        variables["pairs"] = xr.DataArray(
            self.lens.states["pairs"].numpy().astype("int64"), dims=(axes.RELATION, axes.PART)
        )
        result = self.lens.result(variables, descriptions=_DESCRIPTIONS)
        visible, unseen, lost = (int(n) for n in self.lens.states["words"])
        result.data.attrs |= {"words": visible, "words_without_a_piece": unseen, "words_in_broken_trees": lost}
        result.data.attrs["skipped"] = ", ".join(self.skipped.first(10))
        return result

    def _gains(self) -> dict[str, xr.DataArray]:
        """`gain` of a head over the best offset (chosen on the development part), in the held-out part, paired by text.

        With M = Σ w m / W, cov = (Σ w² m m' − M' Σ w² m − M Σ w² m' + M M' Σ w²) / W² and

            se²(M − M') = se² + se'² − 2 n/(n−1) cov
        """
        part = PARTS.index("held_out")
        head, offset = (_sums_of(moments)[..., part] for moments in (self.of_heads, self.of_offsets))
        chosen = _sums_of(self.of_offsets)[MEAN, ..., PARTS.index("development")].nan_to_num(-1.0).argmax(-1)
        at = chosen[None, :, None].expand(len(offset), -1, 1)
        offset = offset.gather(-1, at)  # [sum relation 1]: against every way
        crossed = self.lens.states["products"].gather(
            -1, chosen[:, None, None].expand(*self.lens.states["products"].shape[:-1], 1)
        )[..., 0]
        other = offset[MEAN] * head[SQUARES_OF_VALUES] + head[MEAN] * offset[SQUARES_OF_VALUES]
        covariance = (crossed - other + head[MEAN] * offset[MEAN] * head[SQUARES]) / head[TOTAL_WEIGHT] ** 2
        n = head[TEXTS]
        spread = head[ERROR] ** 2 + offset[ERROR] ** 2 - 2 * n / (n - 1) * covariance
        numbers = {"gain": head[MEAN] - offset[MEAN], "gain_se": spread.clamp(min=0).sqrt()}
        rest = {axes.RELATION: list(self.relations), axes.WAY: list(WAYS)}
        out = {name: self.lens.grid(values, rest) for name, values in numbers.items()}
        out["gain_count"] = self.lens.grid(n, rest).fillna(0).astype("int64")
        return out


_DESCRIPTIONS = {
    "accuracy": "share of a relation's pairs that the head finds",
    "offset_accuracy": "share of pairs whose head is at this offset",
    "pairs": "number of pairs of dependent and head, by relation and part",
    "gain": "held-out accuracy minus that of the offset that is best in development",
}

TEXTS, TOTAL_WEIGHT, MEAN, ERROR, SQUARES, SQUARES_OF_VALUES = range(6)


def _sums_of(moments: Moments) -> Float[Tensor, "sum *cell"]:
    """n, Σ w, mean, its error, Σ w² and Σ w² m of the only variable."""
    pivot, n, weight, *_, squares, of_differences, _ = (each[0] for each in moments.sums())
    mean, error, _ = statistics(moments.sums()[:, 0])
    return torch.stack([n, weight, mean, error, squares, of_differences + pivot * squares])


def in_parts(batch: Batch, development: float) -> Float[Tensor, "text part"]:
    """1 for the part that a hash of a text's id puts it into: development or held out."""
    early = torch.tensor([share(f"part/{example.id}") < development for example in batch.examples])
    return torch.stack([early, ~early], -1).double()


def best_heads(result: Result, *, least: int = 10) -> "pd.DataFrame":
    """For each relation and way the head that is best on the development part, tested on the held-out part.

    Columns: relation, way, stack, layer, head, development, accuracy (held out) with low and high (95 %), se and texts,
    pairs (held out), offset and baseline (chosen and tested in the same way) with baseline_low, baseline_high and
    baseline_se, and gain_se, the paired error of accuracy − baseline. Relations with fewer than `least` pairs in either
    part are left out. `offset` is from the query's word to the word that it should find.
    """
    import pandas as pd

    data = result.data
    rows = []
    for relation in data[axes.RELATION].values:
        here = data.sel({axes.RELATION: relation})
        if int(here.pairs.min()) < least or bool(here.accuracy.isnull().all()):  # a decoder has no words to find
            continue
        pairs = int(here.pairs.sel(part="held_out"))
        base = best_cell(Estimate.of(here, "offset_accuracy"), pairs)
        for way in WAYS:
            best = best_cell(Estimate.of(here, "accuracy", {axes.WAY: way}), pairs)
            offset = int(base[axes.OFFSET]) * (-1 if way == "to_dependent" else 1)
            baseline = {"offset": offset, "baseline": base["accuracy"]}
            if "gain_se" in here:
                place = {dim: best[dim] for dim in (axes.STACK, axes.LAYER, axes.HEAD) if dim in best}
                baseline["gain_se"] = float(here["gain_se"].sel({axes.WAY: way, **place}))
            baseline |= {f"baseline_{name}": base[name] for name in ("low", "high", "se")}
            rows.append({"relation": str(relation), "way": way, **best, "pairs": pairs, **baseline})
    return pd.DataFrame(rows)


def best_cell(accuracy: Estimate, pairs: int) -> Json:
    """The cell that is best on the development part (the first of equals), with its held-out share and interval."""
    development = accuracy.value.sel({axes.PART: "development"}, drop=True)
    where = {str(dim): int(index) for dim, index in development.argmax(...).items()}
    parts = (accuracy.value, accuracy.se, accuracy.count)
    found = Estimate(*(float(part.isel(where).sel({axes.PART: "held_out"})) for part in parts))
    low, high = found.wilson(pairs)
    labels = {dim: development[dim].values[index].item() for dim, index in where.items()}
    tested = {"accuracy": found.value, "low": low, "high": high, "se": found.se, "texts": int(found.count)}
    return {**labels, "development": float(development.isel(where)), **tested}
