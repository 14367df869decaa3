"""One training run: read, train, test once, write."""

import gc
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from transformers import EarlyStoppingCallback, set_seed

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.files import cleared, folder_written_whole, writing
from lorgnette.models.families import anatomy_of
from lorgnette.models.tapping import tapped
from lorgnette.results.provenance import versions
from lorgnette.statistics.estimate import Interval, share_interval
from lorgnette.training.arguments import arguments_of, processes
from lorgnette.training.data import Items
from lorgnette.training.distilling import Teacher
from lorgnette.training.fitting import fit, trainer_of
from lorgnette.training.folder import RECORD, RunFolder
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.progress import Progress
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.trainer import Diverged, PenalisedTrainer, Record, curve_of
from lorgnette.types import Json, PreTrainedModel


@dataclass(frozen=True)
class Trained:
    """A finished training run: its folder, its final metrics and its learning curve.

    >>> lo.Trained.load("runs/residual").accuracy       # doctest: +SKIP
    0.8731
    """

    folder: Path
    metrics: Json
    """`validation` and `test` (None without one): accuracy, macro_f1, cross_entropy, and the mean of each penalty;
    of validation also `majority`, the accuracy of always answering the most frequent class.

    Of translations accuracy and cross_entropy are per token of the reference, and the test has bleu with its signature
    (validation too, if there is no test)."""
    curve: list[Json] = field(repr=False)
    """One entry per evaluation: epoch, step, train, validation, seconds."""
    record: Json = field(repr=False)
    """All of training.json."""

    @property
    def accuracy(self) -> float:
        """Accuracy on the test texts, or on the validation texts if there are none."""
        return float((self.metrics["test"] or self.metrics["validation"])["accuracy"])

    @property
    def accuracy_interval(self) -> Interval | None:
        """Its 95 % interval over texts (Wilson 1927); None for translations, whose tokens are not independent."""
        metrics = self.metrics["test"] or self.metrics["validation"]
        if self.bleu is not None or not metrics["texts"]:
            return None
        return share_interval(round(metrics["accuracy"] * metrics["texts"]), metrics["texts"])

    @property
    def bleu(self) -> float | None:
        """BLEU on the test sentences, or the validation sentences if there are none; None without translation."""
        return (self.metrics["test"] or self.metrics["validation"]).get("bleu")

    @staticmethod
    def load(folder: str | Path) -> "Trained":
        """Load the run that `train` wrote to this folder."""
        record = RunFolder(Path(folder)).finished()
        if record is None:
            raise UserError(f"{folder} holds no finished training run ({RECORD} is missing).")
        return Trained(Path(folder), record["metrics"], record["curve"], record)


def train(
    settings: TrainingSettings,
    *,
    prepared: Prepared | None = None,
    adjust: Callable[[PreTrainedModel], None] | None = None,
) -> Trained:
    """Train one model by these settings and write it to `settings.out`: an ordinary Hugging Face checkpoint.

    The best validation epoch is kept (or the last: `keep_last`); the test texts are read once, afterwards. `prepared`
    saves reading and tokenising again when only the seed or the training settings differ. `adjust` is called with the
    model before it is trained, to freeze a part of it, say.
    """
    run = RunFolder(settings.folder)
    run.refuse_another(settings.record(), settings.resume)
    if settings.resume and run.finished() is not None:
        run.end()  # it may have been killed while it tidied up
        return Trained.load(settings.folder)
    _refuse_precision(settings)
    ready = prepared or prepare(settings)
    together = processes()
    if settings.progress and prepared is None and together.is_main_process:
        print(ready.described(settings), file=sys.stderr, flush=True)
    together.wait_for_everyone()  # everybody has looked at the folder before anybody writes there
    with run.locked() if together.is_main_process else nullcontext():
        if together.is_main_process:
            run.refuse_other_run(settings.record(), settings.resume)
            run.begin(settings.record(), ready.fingerprint)
        together.wait_for_everyone()
        try:
            with writing(settings.folder, "What was kept is still there: --resume goes on from it."):
                _trained(settings, ready, run, adjust)
        except Diverged as error:
            raise UserError(_diverged(error, run)) from error
        except KeyboardInterrupt as interrupt:
            checkpoint = run.checkpoint()
            what = f"; --resume goes on from {checkpoint.name}" if checkpoint else "; no epoch was finished"
            raise KeyboardInterrupt(f"interrupted{what}.") from interrupt
        except UserError:
            if together.is_main_process and run.checkpoint() is None:
                cleared(run.work)  # no checkpoint to resume from
            raise
        together.wait_for_everyone()
    return Trained.load(settings.folder)


def train_seeds(settings: TrainingSettings, seeds: list[int] | tuple[int, ...]) -> list[Trained]:
    """The same for several seeds, into OUT/seed-N; the texts are read and tokenised once."""
    if not seeds:
        raise UserError("give at least one seed.")
    if len(seeds) == 1:
        return [train(settings.replace(seed=seeds[0]))]
    runs = [settings.replace(seed=seed, out=settings.folder / f"seed-{seed}") for seed in dict.fromkeys(seeds)]
    if RunFolder(settings.folder).finished() is not None:
        raise UserError(f"{settings.folder} contains a run of one seed: choose another folder with --out.")
    for each in runs:
        RunFolder(each.folder).refuse_another(each.record(), each.resume)
    prepared = prepare(settings)
    if settings.progress and processes().is_main_process:
        print(prepared.described(settings), file=sys.stderr, flush=True)
    return [train(each, prepared=prepared) for each in runs]


def fitted(
    settings: TrainingSettings,
    ready: Prepared,
    run: RunFolder,
    model: PreTrainedModel,
    *,
    title: str,
    teacher: Teacher | None = None,
) -> tuple[PenalisedTrainer, bool]:
    """Trains a model in place, to the weights that are to be kept; its Trainer, and whether it went on."""
    tally = ready.tally_class()
    progress = Progress(title, tally)
    stopper = EarlyStoppingCallback(early_stopping_patience=settings.patience)
    callbacks = [stopper, Record(tally), *([progress] if settings.progress else [])]
    arguments = arguments_of(settings, run)
    trainer = trainer_of(
        settings,
        ready,
        model,
        arguments,
        tally=tally,
        penalties=settings.penalties,
        callbacks=callbacks,
        teacher=teacher,
    )
    with ExitStack() as undo:
        if teacher is not None:
            undo.enter_context(teacher.watching(model))
        undo.enter_context(quiet())
        undo.callback(progress.stop)
        resumed = fit(trainer, run)
    return trainer, resumed


def _trained(
    settings: TrainingSettings, ready: Prepared, run: RunFolder, adjust: Callable[[PreTrainedModel], None] | None
) -> None:
    started = time.monotonic()
    set_seed(settings.seed)
    model = ready.builder.model()
    if adjust is not None:
        adjust(model)
    _check_layers(settings, model)
    name = Path(settings.model).name if Path(settings.model).is_dir() else settings.model
    title = f"{name} on {ready.parts.train.name}, seed {settings.seed}"
    with ExitStack() as undo:
        if settings.penalties:
            undo.enter_context(tapped(model, *settings.penalties))
        trainer, resumed = fitted(settings, ready, run, model, title=title)
        undo.enter_context(quiet())
        validation = _tested(trainer, ready, ready.validation, "validation")
        test_items = ready.test
        test = None if test_items is None else _tested(trainer, ready, test_items, "test")
    if ready.parts.labels:
        validation["majority"] = max(ready.validation.label_counts().values()) / len(ready.validation)
    metrics = {"validation": validation, "test": test}
    curve = curve_of(trainer.state)
    record = _record(settings, ready, trainer, metrics, curve, test_items)
    record["seconds"] = {
        "training": round(sum(entry["seconds"] for entry in curve), 3),
        "this_process": round(time.monotonic() - started, 3),
    }
    record["resumed"] = resumed
    if processes().is_main_process:
        with quiet():
            _write(settings.folder, model, ready, record, run, keep_checkpoints=settings.keep_checkpoints)
    del trainer
    gc.collect()


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars that transformers shows for every file it reads or writes."""
    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.logging.enable_progress_bar()


def _tested(trainer: PenalisedTrainer, ready: Prepared, items: Items, split: str) -> Json:
    trainer.tally.drain()
    predicted = trainer.predict(items).metrics
    own = ("accuracy", "macro_f1", "cross_entropy")
    metrics = {key: predicted[f"test_{key}"] for key in own if f"test_{key}" in predicted}
    penalties = {key: value for key, value in trainer.tally.drain().items() if key not in ("loss", "accuracy")}
    more = ready.more_metrics(trainer.accelerator.unwrap_model(trainer.model), split)
    return {**metrics, **penalties, **more, "texts": len(items)}


def _refuse_precision(settings: TrainingSettings) -> None:
    if settings.fp16 and not torch.accelerator.is_available():
        raise UserError("fp16 needs a GPU, and there is none here: use bf16, or neither.")


def _check_layers(settings: TrainingSettings, model: PreTrainedModel) -> None:
    """Penalties must find their layers, and their <cls> row, before any step is made."""
    sites = [site.site for site in anatomy_of(model).sites] if settings.penalties else []
    deepest = max((site.layer + 1 for site in sites), default=0)
    for penalty in settings.penalties:
        if not sites:
            raise UserError(f"the {penalty.name} penalty needs attention, but {settings.model!r} has none.")
        wrong = [layer for layer in penalty.layers or () if layer > deepest]
        if wrong:
            raise UserError(f"the {penalty.name} penalty uses layer {wrong[0]}, but the model has {deepest}.")
        if penalty.looks_at_cls and not _has_cls(model, sites):
            raise UserError(
                f"the {penalty.name} penalty uses the row of <cls>, which {settings.model!r} does not have: use "
                "rows all, or a model that classifies from <cls>."
            )


def _has_cls(model: PreTrainedModel, sites: list[Site]) -> bool:
    if all(site.stack == "pooler" for site in sites):
        return True
    own = getattr(model.config, "uses_cls", None)
    return bool(own) if own is not None else "encoder" in {site.stack for site in sites}


def _diverged(error: Diverged, run: RunFolder) -> str:
    checkpoint = run.checkpoint()
    where = f"The last good checkpoint is {checkpoint}" if checkpoint else "No epoch was finished, so nothing was kept"
    return f"{error}: training stopped. {where}. Lower the learning rate, or the weights of the penalties."


def _record(
    settings: TrainingSettings,
    ready: Prepared,
    trainer: PenalisedTrainer,
    metrics: Json,
    curve: list[Json],
    test: Items | None,
) -> Json:
    model = trainer.accelerator.unwrap_model(trainer.model)
    best = next((entry for entry in curve if entry["step"] == trainer.state.best_global_step), None)
    notes = list(ready.notes)
    if test is not None and test.cut:
        notes.append(f"{test.cut} of {len(test)} test texts truncated to {ready.builder.max_length} tokens")
    notes += learnt_nothing(metrics["validation"])
    return {
        "model": settings.model,
        "corpus": ready.parts.train.name,
        "corpus_fingerprint": ready.fingerprint,
        "labels": list(ready.parts.labels),
        "seed": settings.seed,
        "settings": settings.record(),
        "resolved": {"learning_rate": trainer.args.learning_rate, "max_length": ready.builder.max_length},
        "metrics": metrics,
        "best": {"epoch": None if best is None else best["epoch"], "step": trainer.state.best_global_step},
        "epochs": curve[-1]["epoch"] if curve else 0,
        "curve": curve,
        "parameters": {
            "total": sum(p.numel() for p in model.parameters()),
            "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "embeddings": model.get_input_embeddings().weight.numel(),
        },
        "texts": {
            "train": ready.count,
            "validation": len(ready.validation),
            "test": None if test is None else len(test),
        },
        "vocabulary": {"words": len(ready.builder.tokenizer), "with_vector": ready.builder.known_words},
        "notes": notes,
        "device": str(trainer.args.device),
        "processes": trainer.args.world_size,
        "versions": versions(),
        "command": settings.command,
    }


def learnt_nothing(validation: Json) -> list[str]:
    """One line if the 95 % interval of a classifier's accuracy reaches down to that of the most frequent class."""
    if (majority := validation.get("majority")) is None:
        return []
    low, high = share_interval(round(validation["accuracy"] * validation["texts"]), validation["texts"])
    if low > majority:
        return []
    return [
        f"validation accuracy {validation['accuracy']:.3f} (95 % interval {low:.3f} to {high:.3f}) is not "
        f"significantly better than always answering the most frequent class ({majority:.3f}): "
        "try more texts, more epochs or a higher learning rate"
    ]


def _write(
    folder: Path, model: PreTrainedModel, ready: Prepared, record: Json, run: RunFolder, *, keep_checkpoints: bool
) -> None:
    with folder_written_whole(folder, lambda _: set()) as partial:
        model.save_pretrained(partial)
        ready.write(partial, record)
        (partial / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if keep_checkpoints:
            _write_checkpoints(partial, run)
        for logs in run.work.glob("runs"):
            logs.rename(partial / "runs")
    run.end()


def _write_checkpoints(folder: Path, run: RunFolder) -> None:
    """The weights at every evaluation, each in a folder that opens by itself: checkpoint-500 with its tokenizer."""
    rest = {RECORD, "config.json", "generation_config.json"}
    tokenizer = [file for file in folder.iterdir() if file.suffix != ".safetensors" and file.name not in rest]
    for checkpoint in run.checkpoints():
        kept = folder / checkpoint.name
        kept.mkdir()
        for file in (*tokenizer, *checkpoint.glob("*.safetensors*"), *checkpoint.glob("*config.json")):
            shutil.copy(file, kept / file.name)
