"""Whether what goes was chosen well: the same model without what random choices, or magnitude, would take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.models.families.layers import LAYER
from lorgnette.statistics.bootstrap import DRAWS, bootstrap_draws, percentile_interval
from lorgnette.statistics.perplexity import Likelihoods
from lorgnette.training.data import Items
from lorgnette.training.language.task import PreparedTexts
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.parts import Kept, Removable
from lorgnette.training.pruning.removal import remove_parts
from lorgnette.training.pruning.scores import at_random, by_magnitude
from lorgnette.training.pruning.work import Work
from lorgnette.types import Json, PreTrainedModel

BATCH = 64
TEXTS = 1000
"""At most so many texts are read for each choice."""
IGNORED = -100


@dataclass(frozen=True)
class Rates:
    """How many predictions of each text are right."""

    right: Float[np.ndarray, " text"]
    total: Float[np.ndarray, " text"]

    @property
    def value(self) -> float:
        """The share of all predictions that are right."""
        return float(self.right.sum() / self.total.sum())

    def draws(self) -> Float[np.ndarray, " draw"]:
        """The share in texts drawn with replacement; two choices on the same texts get the same draws."""
        both = np.stack([self.right, self.total])

        def of(texts: np.ndarray, axis: int) -> np.ndarray:
            right, total = both[:, texts].sum(axis=axis)
            return np.asarray(right / np.maximum(total, 1))

        return bootstrap_draws(np.arange(len(self.total)), of, draws=DRAWS)


Measured = Rates | Likelihoods


def value_of(found: Measured) -> float:
    return found.perplexity if isinstance(found, Likelihoods) else found.value


def apart(chosen: Measured, others: Sequence[Measured]) -> Json:
    """The choice less the mean of others on the same texts, with the 95 % interval of a paired bootstrap over texts."""
    draws = chosen.draws() - np.mean([other.draws() for other in others], axis=0)
    value = value_of(chosen) - float(np.mean([value_of(other) for other in others]))
    items = len(chosen.tokens) if isinstance(chosen, Likelihoods) else None
    return {"value": value, "interval": list(percentile_interval(draws, items))}


@dataclass(frozen=True)
class Controls:
    """Accuracy (or perplexity) of the model as it was, without what other choices take: nothing is trained."""

    chosen: Measured
    random: tuple[Measured, ...]
    texts: int
    split: str
    metric: str = "accuracy"
    """or "perplexity", of language models"""
    magnitude: Measured | None = None
    free: Measured | None = None
    """with `uniform`: the best choice without equal sizes"""

    @property
    def as_good(self) -> int:
        """Random choices that cost no more than this one."""
        return sum(map(self.is_as_good, self.random))

    def is_as_good(self, other: Measured) -> bool:
        """Whether another choice costs no more than this one."""
        own, value = value_of(self.chosen), value_of(other)
        return value <= own if self.metric == "perplexity" else value >= own

    @property
    def beaten(self) -> bool:
        """Whether the choice is better than more than half of the random ones."""
        return not self.random or 2 * self.as_good < len(self.random)

    def record(self) -> Json:
        single = {"magnitude": self.magnitude, "free": self.free}
        alone = {name: found for name, found in single.items() if found is not None}
        own = {name: value_of(found) for name, found in alone.items()}
        others: Json = {"random": apart(self.chosen, self.random)} if self.random else {}
        others |= {name: apart(self.chosen, [found]) for name, found in alone.items()}
        return {
            "metric": self.metric,
            "chosen": value_of(self.chosen),
            "random": [value_of(each) for each in self.random],
            **own,
            "difference": others,
            "texts": self.texts,
            "split": self.split,
        }

    def note(self) -> str | None:
        """The note for a choice that random choices, or the choice by magnitude, match."""
        record, said = self.record(), []
        if not self.beaten:
            mean = self._said(float(np.mean(record["random"])))
            said.append(
                f"{self.as_good} of {len(self.random)} random choices (mean {self.metric} {mean}; this one differs by "
                f"{self._change(record, 'random')})"
            )
        if self.magnitude is not None and self.is_as_good(self.magnitude):
            said.append(
                f"the choice by magnitude ({self._said(record['magnitude'])}; this one differs by "
                f"{self._change(record, 'magnitude')})"
            )
        if not said:
            return None
        chosen = f"{self.metric} {self._said(record['chosen'])}"
        return f"before any training, {' and '.join(said)} did as well as this one or better ({chosen})."

    def _said(self, value: float, sign: str = "") -> str:
        return f"{value:{sign}.{2 if self.metric == 'perplexity' else 3}f}"

    def _change(self, record: Json, name: str) -> str:
        change = record["difference"][name]
        low, high = (self._said(end, "+") for end in change["interval"])
        return f"{self._said(change['value'], '+')} [{low}, {high}]"


def measure_controls(
    work: Work,
    whole: PreTrainedModel,
    parts: Removable,
    kept: Kept,
    other: Callable[[Float[Tensor, " part"]], Kept],
    free: Kept | None = None,
) -> Controls:
    """How good the model as it was is without what goes, and without what other choices of the same budget take.

    `other` makes a choice of that budget from scores. Where it leaves no choice, there is nothing to compare.
    """
    settings = work.settings
    items, split, numbers = _some(work.ready, min(TEXTS, settings.limit or TEXTS))

    def found(choice: Kept) -> Measured:
        return _measured(remove_parts(whole, choice).eval(), work.ready, items, numbers)

    seeds = range(settings.training.seed, settings.training.seed + settings.controls)
    magnitude = other(by_magnitude(whole, parts))
    others = [other(at_random(parts, seed)) for seed in seeds]
    some = any(each != kept for each in (magnitude, *others)) or not others
    return Controls(
        found(kept),
        tuple(found(each) for each in others) if some else (),
        len(numbers),
        split,
        "perplexity" if isinstance(work.ready, PreparedTexts) else "accuracy",
        magnitude=found(magnitude) if some else None,
        free=None if free is None else found(free),
    )


def as_many_heads(parts: Removable, kept: Mapping[Site, Sequence[int]]) -> Callable[[Float[Tensor, " head"]], Kept]:
    """The choice by some scores that leaves every layer as many heads as another one."""

    def choice(scores: Float[Tensor, " head"]) -> Kept:
        out = {}
        for site, numbers in parts.sites.items():
            if site.kind != LAYER and site in kept:
                order = scores[parts.place[site]].argsort(descending=True, stable=True)[: len(kept[site])]
                out[site] = sorted(numbers[place] for place in order.tolist())
        return out

    return choice


def _some(ready: Prepared, texts: int) -> tuple[Items, str, range]:
    """At most so many test texts (validation texts, if there is no test), of all lengths."""
    test = ready.test if ready.parts.test is not None else None
    items, split = (ready.validation, "validation") if test is None else (test, "test")
    return items, split, range(0, len(items), -(-len(items) // texts))  # they lie in order of length


def _measured(model: PreTrainedModel, ready: Prepared, items: Items, numbers: Sequence[int]) -> Measured:
    if isinstance(ready, PreparedTexts):
        return ready.likelihoods(model, items, numbers)
    collate = ready.trainer_parts()["data_collator"]
    right: list[float] = []
    total: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(numbers), BATCH):
            batch: dict[str, Tensor] = collate([items[number] for number in numbers[start : start + BATCH]])
            given = {name: tensor.to(model.device) for name, tensor in batch.items() if name != "labels"}
            labels = batch["labels"]
            counted = labels != IGNORED
            correct = (model(**given).logits.argmax(-1).cpu() == labels) & counted
            right += correct.flatten(1).sum(1).tolist() if labels.dim() > 1 else correct.tolist()
            total += counted.flatten(1).sum(1).tolist() if labels.dim() > 1 else counted.tolist()
    return Rates(np.array(right, dtype=float), np.array(total, dtype=float))
