"""Hugging Face's Trainer with penalties in the loss, and its learning curve."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import EvalPrediction

from lorgnette.errors import UserError, outside
from lorgnette.training.data import MAPS
from lorgnette.training.penalties import Penalty
from lorgnette.types import Json, PreTrainedModel

CURVE = "curve"
"""The key of our entries in the Trainer's history, which is saved with every checkpoint."""


_DAMAGED = "Delete its folder: --resume then goes on from the one before, or starts again."


class Diverged(UserError):
    """The loss is no longer a number."""


class PenalisedTrainer(Trainer):
    """loss = task + Σ weight · penalty.value. Nothing else of the Trainer is changed."""

    def __init__(self, *args: object, penalties: Sequence[Penalty] = (), tally: "Tally", **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.penalties, self.tally = tuple(penalties), tally
        # Our loss is a mean over the batch whatever the model could do with a number of items.
        self.model_accepts_loss_kwargs = False

    def _load_best_model(self) -> None:
        with outside(f"The checkpoint {self.state.best_model_checkpoint} cannot be read", "Start the run again."):
            super()._load_best_model()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: PreTrainedModel | None = None) -> None:
        with outside(f"Cannot resume from the checkpoint {resume_from_checkpoint}", _DAMAGED):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with outside(f"Cannot resume from the checkpoint {checkpoint}", _DAMAGED):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with outside(f"Cannot resume from the checkpoint {checkpoint}", _DAMAGED):
            super()._load_rng_state(checkpoint)

    def compute_loss(
        self, model: PreTrainedModel, inputs: dict[str, Tensor], return_outputs: bool = False, **_: object
    ) -> Tensor | tuple[Tensor, Any]:
        extra = {key: inputs[key] for key in MAPS if key in inputs}
        given = {key: value for key, value in inputs.items() if key not in extra}
        for penalty in self.penalties:
            penalty.begin(inputs["attention_mask"].bool(), extra)
        task, outputs = super().compute_loss(model, given, return_outputs=True)
        terms = [penalty.value for penalty in self.penalties]
        loss = task + sum(penalty.weight * term for penalty, term in zip(self.penalties, terms, strict=True))
        if not bool(torch.isfinite(loss)):
            raise Diverged(f"the loss became {float(loss.detach())} at step {self.state.global_step + 1}")
        names = [penalty.name for penalty in self.penalties]
        self.tally.add(loss, outputs["logits"], inputs["labels"], dict(zip(names, terms, strict=True)))
        return (loss, outputs) if return_outputs else loss


class Tally:
    """Sums over batches, kept on the device until `drain` reads their means."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor, terms: dict[str, Tensor]) -> None:
        texts = len(labels)
        right = (logits.detach().argmax(-1) == labels).sum()
        new = {"loss": loss.detach() * texts, "accuracy": right, **{k: v.detach() * texts for k, v in terms.items()}}
        self.sums = {key: value + self.sums.get(key, 0) for key, value in new.items()}
        self.count += texts

    def means(self) -> dict[str, float]:
        return {key: float(value) / max(self.count, 1) for key, value in self.sums.items()}

    def drain(self) -> dict[str, float]:
        """The means over all processes since the last time, and start again."""
        if torch.distributed.is_available() and torch.distributed.is_initialized() and self.sums:
            packed = torch.stack([*(v.double() for v in self.sums.values()), _like(self.sums, self.count)])
            torch.distributed.all_reduce(packed)
            *sums, count = packed.tolist()
            means = {key: value / max(count, 1) for key, value in zip(self.sums, sums, strict=True)}
        else:
            means = self.means()
        self.sums, self.count = {}, 0
        return means


def _like(sums: dict[str, Tensor], count: int) -> Tensor:
    return torch.tensor(float(count), dtype=torch.float64, device=next(iter(sums.values())).device)


class Record(TrainerCallback):
    """Keeps the curve in the Trainer's own history, so that it survives an interruption."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.training: dict[str, float] = {}
        self.started: float = time.monotonic()
        self.evaluating = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self.started = time.monotonic()
        self.tally.drain()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if control.should_evaluate:  # the default callback, which comes first, has decided
            self.training = self.tally.drain()

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if control.should_evaluate:
            self.training = self.tally.drain()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_: object,
    ) -> None:
        penalties = {key: value for key, value in self.tally.drain().items() if key not in ("loss", "accuracy")}
        now = time.monotonic()
        validation = {"loss": metrics["eval_loss"], "accuracy": metrics["eval_accuracy"]}
        validation |= {"cross_entropy": metrics["eval_cross_entropy"], **penalties}
        validation |= {"bleu": metrics["eval_bleu"]} if "eval_bleu" in metrics else {}
        entry = {"train": self.training, "validation": validation, "seconds": now - self.started}
        self.started = now
        state.log_history.append({"step": state.global_step, "epoch": state.epoch, CURVE: entry})


def curve_of(state: TrainerState) -> list[Json]:
    """One entry per evaluation: epoch, step, train, validation, seconds."""
    return [
        {"epoch": round(entry["epoch"], 4), "step": entry["step"], **entry[CURVE]}
        for entry in state.log_history
        if CURVE in entry
    ]


def metrics_of(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy, macro-F1 and cross-entropy from the logits."""
    from sklearn.metrics import f1_score

    logits = torch.from_numpy(prediction.predictions).double()
    labels = torch.from_numpy(prediction.label_ids)
    chosen = logits.argmax(-1)
    return {
        "accuracy": (chosen == labels).double().mean().item(),
        "macro_f1": float(f1_score(labels, chosen, average="macro")),
        "cross_entropy": torch.nn.functional.cross_entropy(logits, labels).item(),
    }
