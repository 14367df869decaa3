"""Whether the heads that go were chosen well: the same model without as many random heads of the same layers."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.models.tapping import tapped
from lorgnette.subject.knockout import Knockout
from lorgnette.training.data import Items
from lorgnette.training.language.task import PreparedTexts
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.budget import Budget, equal_sizes
from lorgnette.training.pruning.parts import Kept
from lorgnette.training.pruning.removal import remove_parts
from lorgnette.training.pruning.scores import at_random, by_magnitude, with_as_many_layers
from lorgnette.training.pruning.work import Work
from lorgnette.types import Json, PreTrainedModel

BATCH = 64
TEXTS = 1000
"""At most so many texts are read for each set of heads."""
IGNORED = -100

Heads = Mapping[Site, Sequence[int]]


@dataclass(frozen=True)
class Controls:
    """Accuracy without the chosen heads and without random ones, of the model as it was: nothing is trained."""

    chosen: float
    random: tuple[float, ...]
    texts: int
    split: str
    metric: str = "accuracy"
    """or "perplexity", of language models"""

    @property
    def as_good(self) -> int:
        """Random sets that cost no more than the choice."""
        return sum(map(self.is_as_good, self.random))

    def is_as_good(self, value: float) -> bool:
        """Whether another choice costs no more than this one."""
        return value <= self.chosen if self.metric == "perplexity" else value >= self.chosen

    def said(self, value: float) -> str:
        return f"{value:.2f}" if self.metric == "perplexity" else f"{value:.3f}"

    @property
    def beaten(self) -> bool:
        """Whether the choice is better than more than half of the random sets."""
        return not self.random or 2 * self.as_good < len(self.random)

    def record(self) -> Json:
        return {
            "metric": self.metric,
            "chosen": self.chosen,
            "random": list(self.random),
            "texts": self.texts,
            "split": self.split,
        }

    def note(self) -> str | None:
        """The note for a choice that is no better than chance."""
        if self.beaten:
            return None
        return (
            f"the choice did not beat chance: {self.as_good} of {len(self.random)} random sets with as many heads of "
            f"each layer did as well or better before any training ({self.metric} {self.said(self.chosen)} against "
            f"{self.said(float(np.mean(self.random)))})."
        )


@dataclass(frozen=True)
class ChoiceControls(Controls):
    """The same for all kinds of parts: random choices of the same budget, that by magnitude, and the free one."""

    magnitude: float = float("nan")
    free: float | None = None
    """with `uniform`: the best choice without equal sizes"""

    def record(self) -> Json:
        return super().record() | {"magnitude": self.magnitude, "free": self.free}

    def note(self) -> str | None:
        """The note for a choice that random choices, or the choice by magnitude, match."""
        said = []
        if not self.beaten:
            said.append(
                f"{self.as_good} of {len(self.random)} random choices of the same budget (mean {self.metric} "
                f"{self.said(float(np.mean(self.random)))})"
            )
        if self.is_as_good(self.magnitude):
            said.append(f"the choice by magnitude ({self.metric} {self.said(self.magnitude)})")
        if not said:
            return None
        chosen = self.said(self.chosen)
        return f"before any training, {' and '.join(said)} did as well as this one or better ({chosen})."


def measure_choices(work: Work, whole: PreTrainedModel, budget: Budget, kept: Kept, free: Kept) -> ChoiceControls:
    """Accuracy of the model as it was without what goes, and without what other choices of the same budget take."""
    settings, parts = work.settings, budget.parts
    items, split, numbers = _some(work.ready)

    def value(choice: Kept) -> float:
        model = remove_parts(whole, choice).eval()
        return _rate(model, work.ready, items, numbers)

    def other(scores: Tensor) -> float:
        ranked = with_as_many_layers(parts, scores, kept)
        limit = float(parts.cost(parts.here(kept).double()))
        if settings.uniform:
            return value(equal_sizes(parts, ranked, limit))
        return value(parts.best(ranked, limit, empty=settings.allow_empty))

    seeds = range(settings.training.seed, settings.training.seed + settings.controls)
    return ChoiceControls(
        value(kept),
        tuple(other(at_random(parts, seed)) for seed in seeds),
        len(numbers),
        split,
        _metric(work.ready),
        magnitude=other(by_magnitude(whole, parts)),
        free=value(free) if settings.uniform else None,
    )


def measure_controls(
    model: PreTrainedModel, ready: Prepared, heads: Heads, heads_left: Heads, *, sets: int, seed: int
) -> Controls:
    """Accuracy (of translations: per token of the reference) without the heads that are not kept, and without others.

    Other sets have as many heads at every site, drawn at random: what is compared is the choice within layers. Where
    nothing goes, or whole layers do, there is nothing to choose, and no other set is measured.
    """
    gone = {site: [number for number in numbers if number not in heads_left[site]] for site, numbers in heads.items()}
    if not any(0 < len(gone[site]) < len(heads[site]) for site in heads):
        sets = 0
    items, split, numbers = _some(ready)
    draw = random.Random(seed)
    others = [{site: draw.sample(list(heads[site]), len(gone[site])) for site in gone} for _ in range(sets)]
    values = [_accuracy(model, ready, items, numbers, heads, one) for one in (gone, *others)]
    return Controls(values[0], tuple(values[1:]), len(numbers), split, _metric(ready))


def _metric(ready: Prepared) -> str:
    return "perplexity" if isinstance(ready, PreparedTexts) else "accuracy"


def _some(ready: Prepared) -> tuple[Items, str, range]:
    """At most about a thousand test texts (validation texts, if there is no test), of all lengths."""
    test = ready.test if ready.parts.test is not None else None
    items, split = (ready.validation, "validation") if test is None else (test, "test")
    return items, split, range(0, len(items), max(1, len(items) // TEXTS))  # they lie in order of length


def _accuracy(
    model: PreTrainedModel, ready: Prepared, items: Items, numbers: Sequence[int], heads: Heads, gone: Heads
) -> float:
    places = {site: [list(heads[site]).index(number) for number in chosen] for site, chosen in gone.items() if chosen}
    with tapped(model, Knockout(places)):
        return _rate(model, ready, items, numbers)


def _rate(model: PreTrainedModel, ready: Prepared, items: Items, numbers: Sequence[int]) -> float:
    if isinstance(ready, PreparedTexts):
        return ready.likelihoods(model, items, numbers).perplexity
    collate = ready.trainer_parts()["data_collator"]
    right = total = 0
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(numbers), BATCH):
            batch: dict[str, Tensor] = collate([items[number] for number in numbers[start : start + BATCH]])
            given = {name: tensor.to(model.device) for name, tensor in batch.items() if name != "labels"}
            labels = batch["labels"]
            counted = labels != IGNORED
            right += int(((model(**given).logits.argmax(-1).cpu() == labels) & counted).sum())
            total += int(counted.sum())
    return right / max(total, 1)
