"""Whether explanations are plausible (human rationales) and faithful (what the model uses)."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.constraints import Interval, OneOf, Seed
from lorgnette.errors import UserError, near
from lorgnette.explaining import COSTS, class_number, explanations
from lorgnette.explaining.by_captum import CAPTUM, require_captum
from lorgnette.lens.base import Lens
from lorgnette.lens.losses import task_of
from lorgnette.lens.moments import Moments
from lorgnette.lens.rationales import plausibility as maths
from lorgnette.lens.rationales.faithfulness import SHARES, aopc, top_tokens
from lorgnette.lens.rationales.gold import GOLDS, Marked, gold_share, marked
from lorgnette.lens.rationales.word_removal import PERTURBATIONS, WordRemoval, rows_of
from lorgnette.lens.rationales.words import BLIND, ranks, word_scores
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate, false_discovery
from lorgnette.subject import Subject
from lorgnette.texts import corpus
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

CHEAP = ("attnlrp", "ah", "gradient_x_input", "attention", "rollout")
TOP = 5
PLAUSIBLE = (
    "auprc", "average_precision", "auroc",
    "token_precision", "token_recall", "token_f1", "iou_precision", "iou_recall",
)  # fmt: skip
FAITHFUL = ("comprehensiveness", "sufficiency", "comprehensiveness_top", "sufficiency_top")
MEASURES = (*PLAUSIBLE, *FAITHFUL)
COUNTS = ("texts", "texts_without_gold", "texts_not_marked", "texts_gold_cut", "words", "gold", "gold_cut")
BINS = 8192
_PATIENCE = 256  # texts after which a corpus is taken to have no rationales


class Rationales(Lens):
    """Plausibility and faithfulness of explanations of a classifier's predictions, by words.

        auprc               area under (recall, precision) of a text's words against its gold words    (ERASER)
        pooled_auprc        average precision of the words of all texts together, scores rescaled within each text
        token_f1, iou_f1    of the k words with the highest scores, by words and by spans of words
        comprehensiveness   m(x)_j − m(x without its top words)_j; mean over the top 1, 5, 10, 20, 50 % (AOPC)
        sufficiency         m(x)_j − m(the top words alone)_j; the same mean.  `_top`: of the top k words

    m(x)_j is the probability of the class j that is predicted for the whole text, or of `class_name`, which is then
    the class explained. A word's score is the sum over its tokens, which are deleted or kept together. k is `top` words
    of a text (5, as in HateXplain), or `share` of them: a number, or the corpus whose gold share it is ("yelphat:val").
    `methods` is a name, several names, or "all"; the baselines are random words, the first words and the last words.
    Means are over texts with at least one gold word that is visible to the model. DeYoung et al. 2020, "ERASER", ACL;
    Mathew et al. 2021, "HateXplain", AAAI.

    What it does not tell you: whether people and the model have the same reasons. An explanation can be plausible and
    wrong about the model, and a text with words deleted is unlike the training texts.
    """

    name: ClassVar[str] = "rationales"
    summary: ClassVar[str] = (
        "whether explanations are plausible (human rationales) and faithful (comprehensiveness, sufficiency)"
    )
    reads = frozenset({"labels", "cpu"})
    histogram: Tensor
    counts: Tensor
    seconds: Tensor

    def __init__(
        self,
        methods: Sequence[str] | str = CHEAP,
        *,
        share: Annotated[float, Interval(0, 1, "right")] | str | None = None,
        top: Annotated[int, Interval(1)] | None = None,
        gold: Annotated[str, OneOf(GOLDS)] = "majority",
        perturbation: Annotated[str, OneOf(PERTURBATIONS)] = "delete",
        seed: Seed = 0,
        class_name: str | None = None,
    ) -> None:
        super().__init__()
        self.methods: tuple[str, ...] = _methods(methods)
        if share is not None and top is not None:
            raise UserError(
                "A rationale has either `top` words or a `share` of the words of its text. Set only one of the two."
            )
        self.share, self.top = share, TOP if share is None and top is None else top
        self.gold, self.perturbation, self.seed, self.class_name = gold, perturbation, seed, class_name

    def cost(self) -> str:
        copies = 2 * (len(SHARES) + 1)
        slow = [f"; {method}: {COSTS[method]}" for method in self.methods if method in COSTS]
        return f"for each text {copies} copies without some words for each of {len(self.methods)} rankings" + "".join(
            slow
        )

    def allocate(self, subject: Subject) -> None:
        if subject.labels is None or task_of(subject) != "classification" or subject.encoder.translates:
            raise UserError(
                f"{subject.name!r} ({type(subject.model).__name__}) is not a text classifier, so there is no class "
                "whose rationale could be compared. Give a classifier; `lorgnette train` makes one."
            )
        if isinstance(self.share, str):
            self.share = gold_share(corpus(self.share), self.gold)
        self.target: int | None = None if self.class_name is None else class_number(subject, self.class_name)
        by = {axes.METHOD: self.methods, axes.MEASURE: MEASURES}
        self.scores: Moments = Moments(self, "score", by, at="corpus")
        two = {axes.METHOD: self.methods, axes.METHOD_B: self.methods, axes.MEASURE: MEASURES}
        self.differences: Moments = Moments(self, "score_difference", two, at="corpus")
        self.chance: Moments = Moments(self, "chance", at="corpus")
        self.sums("histogram", len(self.methods), 2, BINS + 1)
        self.sums("counts", len(COUNTS))
        self.sums("seconds", len(self.methods))

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One explanation per method of the texts that have gold, then passes over what is left of them."""
        texts = self._texts(batch)
        if not texts:
            return
        rows = [text.row for text in texts]
        batch = rows_of(batch, rows)
        changed = WordRemoval(self.subject, batch, outputs.logits[rows], self.perturbation, self.target)
        judged = []
        for number, method in enumerate(self.methods):
            began = time.perf_counter()
            scores = word_scores(self.subject, batch, texts, method, self.seed, self.target)
            self.seconds[number] += time.perf_counter() - began
            judged.append(self._judged(number, scores, texts, changed))
        values, weights = (torch.stack([each[which].double() for each in judged], 1) for which in (0, 1))
        self.scores.add(None, rows, score=(values, weights))
        apart, both = values[:, :, None] - values[:, None], weights[:, :, None] * weights[:, None]
        self.differences.add(None, rows, score_difference=(apart, both))
        share = torch.stack([text.marks.double().mean() for text in texts])
        self.chance.add(None, rows, chance=(share, torch.ones_like(share)))

    def _texts(self, batch: Batch) -> list[Marked]:
        """The texts with gold that the model sees; the others are counted."""
        every = [marked(example, batch.source, row, self.gold) for row, example in enumerate(batch.examples)]
        annotated = [text for text in every if text is not None]
        marked_texts = [text for text in annotated if bool(text.gold.any())]
        visible = [text for text in marked_texts if bool(text.marks.any())]
        gone = len(marked_texts) - len(visible)
        seen, gold = (sum(int(getattr(text, what).sum()) for text in visible) for what in ("visible", "marks"))
        cut = sum(int((text.gold & ~text.visible).sum()) for text in marked_texts)
        counted = [len(visible), len(annotated) - len(marked_texts), len(every) - len(annotated), gone, seen, gold, cut]
        self.counts += torch.tensor(counted).to(self.counts)
        if self._count("texts_not_marked") >= _PATIENCE and not self.counts.sum() > self._count("texts_not_marked"):
            raise UserError(_NONE)
        return visible

    def _count(self, name: str) -> int:
        return int(self.counts[COUNTS.index(name)])

    def _judged(
        self, number: int, scores: Sequence[Tensor], texts: Sequence[Marked], changed: WordRemoval
    ) -> tuple[Float[Tensor, "text measure"], Float[Tensor, "text measure"]]:
        """All measures of one method, and 1 where there is one."""
        places = [ranks(one, text, self.seed) for one, text in zip(scores, texts, strict=True)]
        chosen = [place < self._wanted(len(place)) for place in places]
        plausible = torch.stack([_plausible(*one) for one in zip(scores, chosen, texts, strict=True)])
        rescaled = torch.cat([maths.rescaled(one) for one in scores])
        self.histogram[number] += _counted(rescaled, torch.cat([text.marks for text in texts])).to(self.histogram)
        faithful, defined = _faithful(places, chosen, texts, changed)
        values = torch.cat([plausible, faithful], -1)
        weights = torch.cat([plausible.isfinite(), defined], -1)
        return values.nan_to_num(), weights.double()

    def _wanted(self, words: int) -> int:
        """k of a text with so many words."""
        if self.top is not None:
            return self.top
        assert self.share is not None
        assert not isinstance(self.share, str)
        return int(np.ceil(self.share * words - 1e-9))  # 0.1 · 70 is a little more than 7

    def compute(self) -> Result:
        """`score` by explanation and measure; pooled areas and `iou_f1` by explanation; chance, and counts."""
        if not self.counts[COUNTS.index("texts")]:
            raise UserError(_NONE)
        variables: dict[str, Any] = {**self.scores.arrays(), **self.differences.arrays()}
        p = pairs_tested(Estimate.of(xr.Dataset(variables), "score_difference"))
        variables |= {"score_difference_p": p, "score_difference_p_count": p.notnull().astype("int64")}
        score = variables["score"]
        precision, recall = (score.sel({axes.MEASURE: f"iou_{part}"}, drop=True) for part in ("precision", "recall"))
        variables["iou_f1"] = (2 * precision * recall / (precision + recall)).fillna(0.0)
        variables |= {f"pooled_{name}": (axes.METHOD, values) for name, values in self._pooled().items()}
        variables |= self.chance.arrays()
        count = {name: self._count(name) for name in COUNTS}
        variables |= {name: ((), value) for name, value in count.items()}
        variables["pooled_auroc_count"] = ((), count["words"] - count["gold"])  # nothing to tell gold from: no ROC
        variables["pooled_chance"] = ((), count["gold"] / count["words"])
        variables["gold_cut_share"] = ((), count["gold_cut"] / (count["gold"] + count["gold_cut"]))
        # What it costs is a label of the method: no two runs take the same time.
        seconds = (self.seconds / count["texts"]).numpy()
        labels = {axes.METHOD: list(self.methods), "seconds_per_text": (axes.METHOD, seconds)}
        result = self.result(variables, labels, _DESCRIPTIONS)
        k = f"{self.top} words" if self.share is None else f"{100 * self.share:.3g} % of words"
        result.data.attrs |= {"k": k, "gold_rule": self.gold, "perturbation": self.perturbation, "seed": self.seed}
        named = None if self.target is None or self.subject.labels is None else self.subject.labels[self.target]
        result.data.attrs["explained"] = "the predicted class" if named is None else f"the class {named}"
        return result

    def _pooled(self) -> dict[str, list[float]]:
        marks = torch.tensor([False, True])[:, None].expand(2, BINS + 1).flatten()
        bins = torch.arange(BINS + 1, dtype=torch.float64).repeat(2)
        areas = {"auprc": maths.average_precision, "auroc": maths.roc_area}
        return {
            name: [area(bins, marks, one.flatten()).item() for one in self.histogram] for name, area in areas.items()
        }


def pairs_tested(difference: Estimate) -> xr.DataArray:
    """p of every pair of explanations, corrected over all pairs: whichever is best, it was chosen from all of them."""
    dims = (axes.MEASURE, axes.METHOD, axes.METHOD_B)
    p = difference.p.transpose(*dims)
    upper = np.triu(np.ones(p.shape[1:], dtype=bool), 1)
    once = np.stack([false_discovery(np.where(upper, each, np.nan)) for each in p.values])
    return p.copy(data=np.where(upper, once, np.swapaxes(once, 1, 2)))


_NONE = (
    "No text of the corpus has words that people marked (and that the model sees), so there is nothing to compare "
    "explanations with. Give a corpus with rationales: hatexplain, yelphat, eraser_movies, planted."
)


def _methods(wanted: Sequence[str] | str) -> tuple[str, ...]:
    known = explanations()
    names = tuple(known) if wanted == "all" else (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        if name in CAPTUM:
            require_captum()
        elif name not in known and name not in BLIND:
            raise UserError(f"There is no explanation {name!r}.{near(name, known)} There are: {', '.join(known)}.")
    return tuple(dict.fromkeys((*names, *BLIND)))


def _plausible(scores: Tensor, chosen: Tensor, text: Marked) -> Float[Tensor, " measure"]:
    marks = text.marks
    areas = (maths.precision_recall_area, maths.average_precision, maths.roc_area)
    areas_of = torch.stack([area(scores, marks) for area in areas])
    return torch.cat([areas_of, maths.chosen_scores(chosen, marks), maths.span_scores(chosen, marks)])


def _counted(scores: Float[Tensor, " word"], marks: Bool[Tensor, " word"]) -> Float[Tensor, "mark bin"]:
    """Words by score (from 0 to 1) and mark; bins are narrow at 0, where the words of a peaked map crowd."""
    bins = (scores.sqrt() * BINS).round().long()
    out = torch.zeros(2, BINS + 1, dtype=torch.float64)
    return out.index_put_((marks.long(), bins), torch.ones(len(bins), dtype=torch.float64), accumulate=True)


def _faithful(
    places: Sequence[Int[Tensor, "_"]],
    chosen: Sequence[Bool[Tensor, "_"]],
    texts: Sequence[Marked],
    changed: WordRemoval,
) -> tuple[Float[Tensor, "text measure"], Bool[Tensor, "text measure"]]:
    """Comprehensiveness and sufficiency, mean over the shares, then of the k words; and which could be measured."""
    among = _side_by_side([torch.ones_like(text.marks) for text in texts], texts, False)
    order = -_side_by_side(places, texts, 0).double()
    picks = [top_tokens(order, among, share) for share in SHARES]
    drops, defined = changed.drops(torch.stack([*picks, _side_by_side(chosen, texts, False)]))
    columns = [*map(aopc, drops[:, :-1]), *drops[:, -1]]
    known = [*defined[:, :-1].all(1), *defined[:, -1]]
    return torch.stack(columns, -1), torch.stack(known, -1)


def _side_by_side(rows: Sequence[Tensor], texts: Sequence[Marked], fill: int) -> Tensor:
    """Rows of numbers by seen word as [text word], `fill` for words that are not seen or not there."""
    out = torch.full((len(texts), max(len(text.visible) for text in texts)), fill, dtype=rows[0].dtype)
    for line, row, text in zip(out, rows, texts, strict=True):
        line[: len(text.visible)][text.visible] = row
    return out


_DESCRIPTIONS = {
    "score": "score of an explanation, mean over texts; lower is better for sufficiency, higher for all others",
    "score_difference": "score of one explanation minus that of the other, over texts that have both",
    "score_difference_p": "p of that difference (paired t test over texts), corrected over all pairs",
    "iou_f1": "F1 of the mean precision and recall of spans",
    "pooled_auprc": "average precision over the words of all texts together, scores rescaled within a text",
    "pooled_auroc": "AUROC: probability that a gold word scores above another, over the words of all texts",
    "chance": "share of gold words in a text, mean over texts: the AUPRC of random scores",
    "pooled_chance": "share of gold words among all words",
    "gold_cut_share": "share of gold words lost because a long text was truncated",
    "gold_cut": "number of gold words lost to truncation",
    "texts_without_gold": "number of texts in which no annotator marked a word",
    "texts_not_marked": "number of texts without annotation",
    "texts_gold_cut": "number of texts with no gold word after truncation",
}
