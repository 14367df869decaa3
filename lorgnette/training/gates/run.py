"""Fine-tuning with gates: the run that finds out which heads can go."""

import dataclasses
import json
import math
import sys
from contextlib import ExitStack
from functools import cache
from typing import Any

from transformers import PrinterCallback, set_seed

from lorgnette.errors import UserError
from lorgnette.models.tapping import tapped
from lorgnette.training.arguments import arguments_of
from lorgnette.training.folder import RunFolder
from lorgnette.training.gates.gated import GatesLearn
from lorgnette.training.gates.gates import HeadGates, freeze
from lorgnette.training.preparation import Prepared
from lorgnette.training.progress import Progress
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.training.trainer import CURVE, Record, Tally, curve_of

WARMUP = 0.1
"""The share of the steps over which λ grows."""
TRAVEL = 30.0
"""How far log α could go in a run, in units, half of it as the step size falls; to close it needs 7. Runs of less than
some 30 steps cannot close a gate (the step size is at most 0.5): `prune` notes it."""


@cache
def gated(trainer: Any) -> Any:
    """A Trainer class that also trains gates."""
    return type(f"Gated{trainer.__name__}", (GatesLearn, trainer), {})


def fit_gates(settings: PruningSettings, ready: Prepared, run: RunFolder) -> tuple[Any, HeadGates, list[Any]]:
    """The model with its gates after training, and the curve. Goes on from the last checkpoint in the folder."""
    training = settings.training
    set_seed(training.seed)
    model = ready.builder.model()
    steps = training.epochs * math.ceil(ready.count / (training.batch_size * training.accumulate))
    gates = HeadGates.of(
        model,
        settings.stacks,
        weight=settings.pressure,
        warmup=round(WARMUP * steps),
        over=settings.over,
        temperature=settings.temperature,
        keep=None if settings.keep is None else wanted(settings, model),
    )
    freeze(model, gates, settings.train)
    tally = ready.tally_class()
    progress = GateProgress(f"{training.model} with gates on {ready.parts.train.name}", tally, gates)
    rate = settings.gates_learning_rate
    if rate is None:
        rate = min(0.5, max(0.02, TRAVEL / steps))
    plain: Any = ready.trainer_class
    trainer = gated(plain)(
        model=model,
        args=dataclasses.replace(arguments_of(training, run), load_best_model_at_end=False, save_total_limit=1),
        train_dataset=ready.bucketed(training),
        eval_dataset=ready.validation,
        **{"processing_class": ready.builder.tokenizer, **ready.trainer_parts()},
        callbacks=[Record(tally), *([progress] if training.progress else [])],
        penalties=(gates,),
        tally=tally,
        gates=gates,
        gates_learning_rate=rate,
    )
    trainer.remove_callback(PrinterCallback)
    with ExitStack() as undo:
        undo.callback(progress.stop)
        undo.enter_context(tapped(model, gates))
        _fit(trainer, run)
    return model.eval().requires_grad_(True), gates.eval(), curve_of(trainer.state)


def wanted(settings: PruningSettings, model: Any) -> int:
    """How many of the heads that could go are to stay."""
    assert settings.keep is not None
    return max(1, round(settings.keep * len(HeadGates.of(model, settings.stacks).log_alpha)))


def _fit(trainer: Any, run: RunFolder) -> None:
    kept = run.checkpoint()
    if kept is None:
        trainer.train()
        return
    if trainer.args.load_best_model_at_end:
        run.anchor(kept)
    state = json.loads((kept / "trainer_state.json").read_text(encoding="utf-8"))
    if state["global_step"] < state["max_steps"]:
        trainer.train(resume_from_checkpoint=str(kept))
        return
    trainer.state.log_history = state["log_history"]
    trainer._load_from_checkpoint(str(kept))


def refuse_untrained(ready: Prepared, model: str) -> None:
    """Pruning starts from a model that does the corpus's task already."""
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

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        super().on_step_end(args, state, control)
        if self.bars is not None and state.global_step % self.EVERY == 0 and self.tally.count:
            means = self.tally.means()
            said = f"loss {means['loss']:.3f} accuracy {means['accuracy']:.3f} · {self._open()}{self.validation}"
            self.bars.update(self.task, said=said)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        super().on_evaluate(args, state, control)
        if state.is_world_process_zero and self.bars is None and CURVE in state.log_history[-1]:
            print(f"{self.title}: {self._open()}", file=sys.stderr)

    def _open(self) -> str:
        return f"{self.gates.open_heads} of {len(self.gates.log_alpha)} heads open"
