"""The Trainer of a translation model: loss and accuracy per token of the reference, and BLEU on request."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.trainer_utils import EvalPrediction

from lorgnette.training.trainer import PenalisedTrainer, Tally
from lorgnette.training.translation.data import IGNORED
from lorgnette.types import ModelOutput, PreTrainedModel


class TranslationTrainer(PenalisedTrainer):
    """Teacher forcing without a cache. `bleu`, if given, is called with the model at each evaluation."""

    def __init__(self, *args: object, bleu: Callable[[PreTrainedModel], float] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bleu = bleu
        self.compute_loss_func = self._smoothed

    def _smoothed(self, outputs: ModelOutput, labels: Tensor, **_: object) -> Tensor:
        """(1 − ε)·(−log p of the reference) + ε·(its mean over the vocabulary), the mean over tokens.

        What the Trainer's own label smoother gives, with half as many copies of the logits.
        """
        smoothing = self.args.label_smoothing_factor
        return torch.nn.functional.cross_entropy(
            outputs["logits"].flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing
        )

    def compute_loss(
        self, model: PreTrainedModel, inputs: dict[str, Any], return_outputs: bool = False, **more: Any
    ) -> Tensor | tuple[Tensor, Any]:
        given: dict[str, Any] = {**inputs, "use_cache": False}
        return super().compute_loss(model, given, return_outputs, **more)

    def evaluation_loop(self, *args: object, metric_key_prefix: str = "eval", **kwargs: object) -> Any:
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        if self.bleu is not None and metric_key_prefix == "eval":
            output.metrics["eval_bleu"] = self.bleu(self.accelerator.unwrap_model(self.model))
        return output


class TokenTally(Tally):
    """Counts tokens of the references, not texts."""

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor, terms: dict[str, Tensor]) -> None:
        real = labels != IGNORED
        tokens = int(real.sum())
        right = ((logits.detach().argmax(-1) == labels) & real).sum()
        new = {"loss": loss.detach() * tokens, "accuracy": right, **{k: v.detach() * tokens for k, v in terms.items()}}
        self.sums = {key: value + self.sums.get(key, 0) for key, value in new.items()}
        self.count += tokens


def per_text(logits: Any, labels: Int[Tensor, "batch token"]) -> Float[Tensor, "batch 3"]:
    """Of each text −log p of its reference, how many of its tokens are the likeliest, and how many there are.

    So that an evaluation keeps three numbers of a text and not its logits.
    """
    scores = (logits[0] if isinstance(logits, tuple | list) else logits).float()
    real = labels != IGNORED
    loss = torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(labels)
    right = (scores.argmax(-1) == labels) & real
    return torch.stack([loss.sum(-1), right.sum(-1).float(), real.sum(-1).float()], dim=-1)


def token_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Cross-entropy per token without smoothing, and the share of tokens that are the likeliest given those before."""
    loss, right, tokens = np.asarray(prediction.predictions, dtype=np.float64).sum(axis=0)
    return {"accuracy": float(right / tokens), "cross_entropy": float(loss / tokens)}
