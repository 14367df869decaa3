"""How good a model is on the texts of a run, with an interval, and whether another is really worse."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from lorgnette.statistics.bleu import Bleu
from lorgnette.statistics.bleu import difference as bleu_difference
from lorgnette.statistics.bootstrap import bootstrap_mean_interval, percentile_interval
from lorgnette.statistics.estimate import share_interval
from lorgnette.statistics.perplexity import Likelihoods
from lorgnette.statistics.perplexity import difference as perplexity_difference
from lorgnette.training.data import Collator
from lorgnette.training.language.task import PreparedTexts
from lorgnette.training.preparation import Prepared
from lorgnette.training.translation.task import PreparedPairs
from lorgnette.types import Json, PreTrainedModel

BATCH = 64
METRICS = {"accuracy": 4, "bleu": 2, "perplexity": 2}
"""What scores are called, and with how many digits they are shown."""


@dataclass(frozen=True)
class Score:
    """Accuracy (or BLEU, or perplexity) of one model on some texts, with its 95 % interval."""

    metric: str
    value: float
    interval: tuple[float, float]
    texts: int
    split: str
    outcomes: Bool[np.ndarray, " text"] | Bleu | Likelihoods

    def minus(self, other: "Score") -> tuple[float, tuple[float, float]]:
        """The difference on the same texts, with the 95 % interval of a paired bootstrap over texts."""
        if isinstance(self.outcomes, Bleu):
            assert isinstance(other.outcomes, Bleu)
            apart = bleu_difference(self.outcomes, other.outcomes)
            return apart.value, apart.interval
        if isinstance(self.outcomes, Likelihoods):
            assert isinstance(other.outcomes, Likelihoods)
            return perplexity_difference(self.outcomes, other.outcomes)
        assert isinstance(other.outcomes, np.ndarray)
        gains = self.outcomes.astype(float) - other.outcomes.astype(float)
        return float(gains.mean()), bootstrap_mean_interval(gains)

    def record(self) -> Json:
        own = {self.metric: self.value, "interval": list(self.interval), "texts": self.texts, "split": self.split}
        return own | ({"signature": self.outcomes.signature} if isinstance(self.outcomes, Bleu) else {})


def metric_of(record: Json) -> tuple[str, int]:
    """What the score of a record is called, and its digits."""
    return next((name, digits) for name, digits in METRICS.items() if name in record)


def score(model: PreTrainedModel, ready: Prepared) -> Score:
    """On the test texts; on those of validation if there is no test."""
    split = "test" if ready.parts.test is not None else "validation"
    if isinstance(ready, PreparedTexts):
        items = ready.validation if ready.test is None else ready.test
        found = ready.likelihoods(model, items)
        return Score("perplexity", found.perplexity, found.interval, len(items), split, found)
    if isinstance(ready, PreparedPairs):
        _, bleu = ready.scored(model, split)
        interval = percentile_interval(bleu.draws())
        return Score("bleu", bleu.score, interval, len(bleu.references), split, bleu)
    test = ready.test if split == "test" else None
    items = ready.validation if test is None else test
    right = _right(model, items, ready.builder.tokenizer.pad_token_id)
    bounds = share_interval(int(right.sum()), len(right))
    return Score("accuracy", float(right.mean()), bounds, len(right), "validation" if test is None else "test", right)


def _right(model: PreTrainedModel, items: Any, padding: int) -> Bool[np.ndarray, " text"]:
    collate, correct = Collator(padding), []
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(items), BATCH):
            batch = collate([items[number] for number in range(start, min(start + BATCH, len(items)))])
            given = {name: tensor.to(model.device) for name, tensor in batch.items() if name != "labels"}
            correct.append(model(**given).logits.argmax(-1).cpu() == batch["labels"])
    return torch.cat(correct).numpy()
