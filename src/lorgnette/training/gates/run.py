"""Fine-tuning with gates: the run that finds out which heads can go."""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from transformers import TrainerControl, TrainerState, TrainingArguments, set_seed

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.models.tapping import tapped
from lorgnette.training.arguments import arguments_of
from lorgnette.training.distilling import Teacher
from lorgnette.training.fitting import fit, trainer_of
from lorgnette.training.folder import RunFolder
from lorgnette.training.gates.gates import HeadGates, freeze, heads_of
from lorgnette.training.gates.parts import PartGates
from lorgnette.training.language.task import PreparedTexts
from lorgnette.training.preparation import Prepared
from lorgnette.training.progress import Progress
from lorgnette.training.pruning.removal import unwrap
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.trainer import CURVE, Record, Tally, curve_of
from lorgnette.types import Json, PreTrainedModel

WARMUP = 0.1
"""The share of the steps over which λ grows."""
TRAVEL = 30.0
"""How far log α could go in a run, in units, half of it as the step size falls; to close it needs 7. Runs of less than
some 30 steps cannot close a gate (the step size is at most 0.5): `prune` notes it."""


def fit_gates(
    settings: PruningSettings, ready: Prepared, run: RunFolder, model: PreTrainedModel
) -> tuple[HeadGates, list[Json]]:
    """Trains gates on a model's heads, and the model with them, in place; the gates and the curve.

    Goes on from the last checkpoint in the folder.
    """
    training = settings.training
    heads = heads_of(model, settings.stacks)
    steps = steps_of(training, ready)
    gates = HeadGates(
        heads,
        weight=settings.pressure,
        warmup=round(WARMUP * steps),
        over=settings.over,
        temperature=settings.temperature,
        keep=None if settings.keep is None else wanted(settings, heads),
    )
    return _fitted(settings, ready, run, model, gates)


def fit_part_gates(
    settings: PruningSettings,
    ready: Prepared,
    run: RunFolder,
    model: PreTrainedModel,
    gates: PartGates,
    teacher: Teacher | None,
) -> tuple[HeadGates, list[Json]]:
    """The same with gates on all kinds of parts, learning from the model as it was."""
    return _fitted(settings, ready, run, model, gates, teacher)


def steps_of(training: TrainingSettings, ready: Prepared) -> int:
    """How many steps of the optimizer the training has."""
    assert training.epochs is not None
    return training.epochs * math.ceil(ready.count / (training.batch_size * training.accumulate))


def _fitted(
    settings: PruningSettings,
    ready: Prepared,
    run: RunFolder,
    model: PreTrainedModel,
    gates: HeadGates,
    teacher: Teacher | None = None,
) -> tuple[HeadGates, list[Json]]:
    training = settings.training
    set_seed(training.seed)
    gates.to(model.device)
    freeze(model, gates, settings.train)
    steps = steps_of(training, ready)
    tally = ready.tally_class()
    progress = GateProgress(f"{training.model} with gates on {ready.parts.train.name}", tally, gates)
    rate = settings.gates_learning_rate
    arguments = dataclasses.replace(arguments_of(training, run), load_best_model_at_end=False, save_total_limit=1)
    trainer = trainer_of(
        training,
        ready,
        model,
        arguments,
        tally=tally,
        callbacks=[Record(tally), *([progress] if training.progress else [])],
        gates=gates,
        gates_learning_rate=min(0.5, max(0.02, TRAVEL / steps)) if rate is None else rate,
        teacher=teacher,
    )
    with ExitStack() as undo:
        undo.callback(progress.stop)
        undo.enter_context(gates.hooked(model) if isinstance(gates, PartGates) else tapped(model, gates))
        if teacher is not None:
            undo.enter_context(teacher.watching(model))
        fit(trainer, run)
    unwrap(model)
    model.eval().requires_grad_(True)
    return gates.eval(), curve_of(trainer.state)


def wanted(settings: PruningSettings, heads: Mapping[Site, Sequence[int]]) -> int:
    """How many of the removable heads to keep."""
    assert settings.keep is not None
    return max(1, round(settings.keep * sum(map(len, heads.values()))))


def refuse_untrained(ready: Prepared, model: str) -> None:
    """Pruning starts from a model that does the corpus's task already."""
    if isinstance(ready, PreparedTexts):
        return
    names = ready.builder.config.architectures or []
    if not ready.builder.config.is_encoder_decoder and not any("Classifi" in name for name in names):
        raise UserError(
            f"{model!r} has no head for the classes of {ready.parts.train.name}: train it first (lorgnette train "
            f"{model} --corpus {ready.parts.train.name} --out …), then prune what comes out."
        )


class GateProgress(Progress):
    """The bar of a run, with how many heads are open."""

    def __init__(self, title: str, tally: Tally, gates: HeadGates) -> None:
        super().__init__(title, tally)
        self.gates = gates

    def said(self) -> str:
        return f"{self._open()} · {super().said()}"

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        super().on_evaluate(args, state, control)
        if state.is_world_process_zero and self.bars is None and CURVE in state.log_history[-1]:
            print(f"{self.title}: {self._open()}", file=sys.stderr)

    def _open(self) -> str:
        return f"{self.gates.open_heads} of {len(self.gates.log_alpha)} {self.gates.noun} open"
