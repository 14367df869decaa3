"""Set up Hugging Face's Trainer, and resume it from a checkpoint."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback, TrainingArguments

from lorgnette.training.distilling import Taught, Teacher
from lorgnette.training.folder import RunFolder
from lorgnette.training.gates.gated import GatesLearn
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.penalties import Penalty
from lorgnette.training.preparation import Prepared
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.trainer import PenalisedTrainer, Tally
from lorgnette.types import Json, PreTrainedModel


@cache
def gated(trainer: Any) -> Any:
    """A Trainer class that also trains gates."""
    return type(f"Gated{trainer.__name__}", (GatesLearn, trainer), {})


@cache
def taught(trainer: Any) -> Any:
    """A Trainer class that also learns from a teacher."""
    return type(f"Taught{trainer.__name__}", (Taught, trainer), {})


def trainer_of(
    settings: TrainingSettings,
    ready: Prepared,
    model: PreTrainedModel,
    arguments: TrainingArguments,
    *,
    tally: Tally,
    penalties: Sequence[Penalty] = (),
    callbacks: Sequence[TrainerCallback] = (),
    gates: HeadGates | None = None,
    gates_learning_rate: float | None = None,
    teacher: Teacher | None = None,
) -> PenalisedTrainer:
    """A Trainer of the kind that the prepared texts need; gates, if there are any, learn with a rate of their own."""
    kind: Any = ready.trainer_class
    more: Json = {}
    if teacher is not None:
        kind, more = taught(kind), {"teacher": teacher}
    if gates is not None:
        kind, penalties = gated(kind), (*penalties, gates)
        more |= {"gates": gates, "gates_learning_rate": gates_learning_rate}
    trainer = kind(
        model=model,
        args=arguments,
        train_dataset=ready.bucketed(settings),
        eval_dataset=ready.validation,
        **ready.trainer_parts(),
        callbacks=list(callbacks),
        penalties=tuple(penalties),
        tally=tally,
        **more,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def fit(trainer: PenalisedTrainer, run: RunFolder) -> bool:
    """Trains, from the last checkpoint if there is one (then True); ends with the weights to keep in the model."""
    last = run.checkpoint()
    if last is not None and trainer.args.load_best_model_at_end:
        run.anchor(last)
    if last is None or not _was_over(last):
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        return last is not None
    trainer.state = transformers.TrainerState.load_from_json(str(last / "trainer_state.json"))
    if trainer.args.load_best_model_at_end:
        trainer._load_best_model()
    else:
        trainer._load_from_checkpoint(str(last))
    return True


def _was_over(checkpoint: Path) -> bool:
    """Whether training had ended by itself when this checkpoint was written: going on would train too long."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    stopper = state.get("stateful_callbacks", {}).get(EarlyStoppingCallback.__name__, {})
    waited = stopper.get("attributes", {}).get("early_stopping_patience_counter", 0)
    patience = stopper.get("args", {}).get("early_stopping_patience", float("inf"))
    return state["global_step"] >= state["max_steps"] or waited >= patience
