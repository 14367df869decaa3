"""Which heads attend to the antecedent of a mention; baselines: nearest mention, same head word, nearest subject."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.attending.words import between_words
from lorgnette.constraints import Share
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.parts import OncePerBatch
from lorgnette.lens.relations.lens import PARTS, best_cell, in_parts
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.subject import Subject
from lorgnette.syntax.gold_trees import sites_between_words
from lorgnette.texts.batch import Batch
from lorgnette.texts.coreference import KINDS, mentions_of, subjects_of
from lorgnette.texts.example import Example

if TYPE_CHECKING:
    import pandas as pd


CANDIDATES = ("mentions", "words")
RULES = ("nearest", "head_match", "subject")


def chosen(
    attention: Float[Tensor, "head mention word"], candidates: Bool[Tensor, "mention word"]
) -> Int[Tensor, "head mention"]:
    """argmax_j α_ij over the candidates, i the head word of a mention; −1 where it gives them nothing."""
    best, where = attention.masked_fill(~candidates, 0.0).max(-1)
    return torch.where(best > 0, where, -1)


def nearest(mention: int, heads: Sequence[int]) -> int | None:
    """The last of the earlier mentions, by its head word."""
    earlier = [head for head in heads if head < heads[mention]]
    return max(earlier, default=None)


def head_match(mention: int, heads: Sequence[int], words: Sequence[str]) -> int | None:
    """The last of the earlier mentions with the same head word (upper and lower case are alike); else none."""
    own = words[heads[mention]].lower()
    same = [head for head in heads if head < heads[mention] and words[head].lower() == own]
    return max(same, default=None)


def subject_before(mention: int, heads: Sequence[int], subjects: Collection[int]) -> int | None:
    """The last of the earlier mentions that is the subject of its clause; else none."""
    return max((head for head in heads if head < heads[mention] and head in subjects), default=None)


ALL_KINDS = ("all", *KINDS)

_DESCRIPTIONS = {
    "accuracy": "share of mentions whose head word attends most to that of an antecedent",
    "baseline_accuracy": "share of mentions whose antecedent the rule finds",
    "over_baseline": "accuracy of the head among mentions minus that of the rule",
}


class Coreference(Lens):
    """Share of mentions whose head word attends most to the head word of an antecedent (Clark et al. 2019, §4.3).

        found   argmax_j α_ij is the head of an earlier mention of the same chain, i the head of the mention

    α is between words. Candidates j: head words of earlier mentions (`mentions`), or all other words (`words`). Only
    mentions with an antecedent in the same text count. By kind of mention: pronoun, proper, nominal. Baselines: the
    nearest earlier mention, the nearest with the same head word, and the nearest subject (none: not found), where
    subjects are known. A hash of its id assigns a text to the development or the held-out part; choose a head on one
    and report its accuracy on the other, as `best_antecedents` does. Shares are over all mentions, standard errors over
    texts.

    What it does not tell you: whether the model resolves coreference. Any head that attends to repeated words finds
    repeated mentions.
    """

    name: ClassVar[str] = "coreference"
    summary: ClassVar[str] = "which heads attend to the antecedent of a mention (GUM, GAP)"
    reads = frozenset({"cpu"})

    def __init__(self, development: Share = 0.5) -> None:
        super().__init__()
        self.development = development

    def allocate(self, subject: Subject) -> None:
        self.parsing = sites_between_words(self.sites, subject)
        self.begun: OncePerBatch[None] = OncePerBatch(self, self._begin)
        by_kind = {axes.KIND: ALL_KINDS, axes.PART: PARTS}
        by_rule = {axes.BASELINE: RULES, **by_kind}
        self.of_heads: Moments = Moments(self, "accuracy", {axes.CANDIDATES: CANDIDATES, **by_kind})
        self.of_rules: Moments = Moments(self, "baseline_accuracy", by_rule, at="corpus")
        self.over_rules: Moments = Moments(self, "over_baseline", by_rule)
        self.sums("counted", len(ALL_KINDS), len(PARTS))
        self.sums("mentions", 3)  # all, with an antecedent in the text, of these without a piece

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site not in self.parsing:
            return
        self.begun(batch)
        weights = call.weights.to(torch.promote_types(call.query.dtype, torch.float32))
        attention = between_words(weights, batch.source.word, self.visible.shape[1])[0].cpu()
        if self.tasks:
            values = torch.stack([self._shares(attention[text], tasks) for text, tasks in self.tasks.items()])
            over = values[:, :, None, CANDIDATES.index("mentions")] - self.rules[:, None]  # [text head rule kind]
            over = over[..., None].expand(*over.shape, len(PARTS))
            self.over_rules.add(site, list(self.tasks), over_baseline=(over, self.of_rule[:, None]))
            values = values[..., None].expand(*values.shape, len(PARTS))
            self.of_heads.add(site, list(self.tasks), accuracy=(values, self.weights[:, None, None]))

    def _shares(
        self, attention: Float[Tensor, "head word word2"], tasks: "_Tasks"
    ) -> Float[Tensor, "head candidates kind"]:
        out = []
        for candidates in (tasks.earlier, tasks.others):
            where = chosen(attention[:, tasks.mention], candidates)
            hit = tasks.gold.expand(len(where), -1, -1).gather(-1, where.clamp(min=0)[..., None])[..., 0] & (where >= 0)
            out.append(hit.double() @ tasks.kinds / tasks.counts.clamp(min=1))
        return torch.stack(out, 1)

    def _begin(self, batch: Batch) -> None:
        """What all layers of a batch share; rules and counts are taken in here, once."""
        size = max(len(words) for words in batch.source.words)
        self.visible: Tensor = (batch.source.word.cpu()[..., None] == torch.arange(size)).any(1)
        self.tasks: dict[int, _Tasks] = {}
        for text, example in enumerate(batch.examples):
            tasks, counts = _tasks(example, self.visible[text])
            self.mentions += torch.tensor(counts).to(self.mentions)
            if tasks is not None:
                self.tasks[text] = tasks
        if self.tasks:
            each = torch.stack([tasks.counts for tasks in self.tasks.values()])
            self.weights: Tensor = each[..., None] * in_parts(batch, self.development)[list(self.tasks), None]
            self.counted += self.weights.sum(0).to(self.counted)  # [kind part]
            self.rules: Tensor = torch.stack([tasks.rules for tasks in self.tasks.values()])
            rules = self.rules[..., None].expand(*self.rules.shape, len(PARTS))
            known = torch.tensor(
                [[tasks.with_subjects or rule != "subject" for rule in RULES] for tasks in self.tasks.values()]
            )
            self.of_rule: Tensor = self.weights[:, None] * known[..., None, None]  # [text rule kind part]
            self.of_rules.add(None, list(self.tasks), baseline_accuracy=(rules, self.of_rule))

    def compute(self) -> Result:
        """`accuracy` by head, candidates, kind and part; `baseline_accuracy` by rule, kind and part."""
        variables = self.of_heads.arrays() | self.of_rules.arrays() | self.over_rules.arrays()
        variables["pairs"] = xr.DataArray(
            self.counted.numpy().astype("int64"), coords={axes.KIND: list(ALL_KINDS), axes.PART: list(PARTS)}
        )
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        every, counted, unseen = (int(n) for n in self.mentions)
        result.data.attrs |= {"mentions": every, "with_antecedent": counted, "without_a_piece": unseen}
        return result


def best_antecedents(result: Result, *, least: int = 10) -> "pd.DataFrame":
    """For each kind of mention and candidates the head that is best on the development part, tested on the held-out.

    Columns: kind, candidates, stack, layer, head, development, accuracy (held out) with low and high (95 %), pairs
    (held-out mentions), and the rules on the same part: nearest, head_match, subject (NaN where nobody says which words
    are subjects). Kinds with fewer than `least` mentions in either part are left out.
    """
    import pandas as pd

    rows = []
    for kind in ALL_KINDS:
        here = result.data.sel({axes.KIND: kind})
        if int(here.pairs.min()) < least or bool(here.accuracy.isnull().all()):
            continue
        pairs = int(here.pairs.sel({axes.PART: "held_out"}))
        rules = here.baseline_accuracy.sel({axes.PART: "held_out"})
        baselines = {rule: float(rules.sel({axes.BASELINE: rule})) for rule in RULES}
        for candidates in CANDIDATES:
            cells = here.sel({axes.CANDIDATES: candidates})
            best = best_cell(Estimate.of(cells, "accuracy"), pairs)
            rows.append({"kind": kind, "candidates": candidates, **best, "pairs": pairs, **baselines})
    return pd.DataFrame(rows)


class _Tasks(NamedTuple):
    """The mentions of one text that have an antecedent in it."""

    mention: Int[Tensor, " mention"]  # head words
    earlier: Bool[Tensor, "mention word"]  # head words of earlier mentions
    others: Bool[Tensor, "mention word"]
    gold: Bool[Tensor, "mention word"]  # those of antecedents
    kinds: Float[Tensor, "mention kind"]
    counts: Float[Tensor, " kind"]
    rules: Float[Tensor, "rule kind"]
    with_subjects: bool  # annotations say which words are subjects


def _tasks(example: Example, visible: Bool[Tensor, " word"]) -> tuple[_Tasks | None, tuple[int, int, int]]:
    mentions = mentions_of(example)
    heads = [mention.head for mention in mentions]
    size = len(visible)
    rows, unseen = [], 0
    for number, mention in enumerate(mentions):
        gold = {m.head for m in mentions if m.chain == mention.chain and m.head < mention.head}
        if not gold:
            continue
        if not visible[mention.head] or not all(visible[head] for head in gold):
            unseen += 1
            continue
        rows.append((number, mention, gold))
    total = (len(mentions), len(rows) + unseen, unseen)
    if not rows:
        return None, total
    flags = lambda places: torch.zeros(size, dtype=torch.bool).index_fill(0, torch.tensor(sorted(places)), True)  # noqa: E731
    right = torch.stack([flags(gold) for _, _, gold in rows])
    earlier = torch.stack([flags({h for h in heads if h < m.head}) & visible for _, m, _ in rows])
    others = torch.stack([visible & (torch.arange(size) != m.head) for _, m, _ in rows])
    kinds = torch.tensor([[1.0, *(float(m.kind == kind) for kind in KINDS)] for _, m, _ in rows], dtype=torch.float64)
    counts = kinds.sum(0)
    rules = _rules_found(example, heads, [(number, gold) for number, _, gold in rows]).mT @ kinds / counts.clamp(min=1)
    place = torch.tensor([m.head for _, m, _ in rows])
    known = subjects_of(example) is not None
    return _Tasks(place, earlier, others, right, kinds, counts, rules, known), total


def _rules_found(
    example: Example, heads: Sequence[int], rows: Sequence[tuple[int, set[int]]]
) -> Float[Tensor, "mention rule"]:
    """1 where a rule finds one of a mention's antecedents."""
    assert example.words is not None
    subjects = subjects_of(example) or frozenset()
    found = [
        (nearest(number, heads), head_match(number, heads, example.words), subject_before(number, heads, subjects))
        for number, _ in rows
    ]
    return torch.tensor(
        [[float(one in gold) for one in each] for each, (_, gold) in zip(found, rows, strict=True)],
        dtype=torch.float64,
    )
