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
from lorgnette.training.preparation import Prepared
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

    @property
    def as_good(self) -> int:
        """Random sets that cost no more than the choice."""
        return sum(value >= self.chosen for value in self.random)

    @property
    def beaten(self) -> bool:
        """Whether the choice is better than more than half of the random sets."""
        return not self.random or 2 * self.as_good < len(self.random)

    def record(self) -> Json:
        return {"chosen": self.chosen, "random": list(self.random), "texts": self.texts, "split": self.split}

    def note(self) -> str | None:
        """What must be said where the choice is no better than chance."""
        if self.beaten:
            return None
        return (
            f"the choice did not beat chance: {self.as_good} of {len(self.random)} random sets with as many heads of "
            f"each layer did as well or better before any training (accuracy {self.chosen:.3f} against "
            f"{np.mean(self.random):.3f})."
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
    test = ready.test if ready.parts.test is not None else None
    items, split = (ready.validation, "validation") if test is None else (test, "test")
    step = max(1, len(items) // TEXTS)  # they lie in order of length
    numbers = range(0, len(items), step)
    draw = random.Random(seed)
    others = [{site: draw.sample(list(heads[site]), len(gone[site])) for site in gone} for _ in range(sets)]
    values = [_accuracy(model, ready, items, numbers, heads, one) for one in (gone, *others)]
    return Controls(values[0], tuple(values[1:]), len(numbers), split)


def _accuracy(
    model: PreTrainedModel, ready: Prepared, items: Items, numbers: Sequence[int], heads: Heads, gone: Heads
) -> float:
    collate = ready.trainer_parts()["data_collator"]
    places = {site: [list(heads[site]).index(number) for number in chosen] for site, chosen in gone.items() if chosen}
    right = total = 0
    model.eval()
    with torch.inference_mode(), tapped(model, Knockout(places)):
        for start in range(0, len(numbers), BATCH):
            batch: dict[str, Tensor] = collate([items[number] for number in numbers[start : start + BATCH]])
            given = {name: tensor.to(model.device) for name, tensor in batch.items() if name != "labels"}
            labels = batch["labels"]
            counted = labels != IGNORED
            right += int(((model(**given).logits.argmax(-1).cpu() == labels) & counted).sum())
            total += int(counted.sum())
    return right / max(total, 1)
