"""`prune`: choose heads, remove them for good, train the rest a little, and say what it cost and what it saved."""

import json
import math
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor
from transformers import set_seed

from lorgnette.errors import UserError
from lorgnette.files import cleared, folder_written_whole, write_whole, writing
from lorgnette.models.pruned.checkpoint import as_pruned, kept_layers, kept_units
from lorgnette.models.pruned.stock import cache_is_short, stock_model
from lorgnette.results.provenance import versions
from lorgnette.subject import load
from lorgnette.subject.loading import default_device
from lorgnette.training.distilling import Teacher
from lorgnette.training.folder import RECORD, RunFolder, read_record, refuse_changes
from lorgnette.training.gates.gates import HeadGates, freeze_but, heads_of
from lorgnette.training.gates.run import refuse_untrained, wanted
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.pruning.budget import as_large, budget_of, savings_by_kind
from lorgnette.training.pruning.choice import KEPT, chosen, teacher_of
from lorgnette.training.pruning.compared import compared, tuned_notes
from lorgnette.training.pruning.controls import as_many_heads, measure_controls
from lorgnette.training.pruning.counted import without_heads
from lorgnette.training.pruning.export import export_onnx
from lorgnette.training.pruning.parts import Kept, counts, parts_of
from lorgnette.training.pruning.refusals import (
    refuse_count,
    refuse_family,
    refuse_few,
    refuse_format,
    refuse_language_model,
    refuse_settings,
    transformers_knows,
)
from lorgnette.training.pruning.removal import count_heads, fresh, plain_copy, remove_parts, unwrap
from lorgnette.training.pruning.runtimes import runtimes
from lorgnette.training.pruning.score import Score, score
from lorgnette.training.pruning.scores import at_random
from lorgnette.training.pruning.sentences import forecast_lines, kind_lines, readme, share_lines
from lorgnette.training.pruning.settings import STACKS, PruningSettings
from lorgnette.training.pruning.speed import Savings, forecast, savings
from lorgnette.training.pruning.work import Work
from lorgnette.training.run import fitted, quiet
from lorgnette.training.trainer import curve_of
from lorgnette.types import Json, PreTrainedModel

ONNX, README = "model.onnx", "README.md"
_RUN = "run.json"
SCRATCH = 3e-4
"""The step size of a model from random weights."""
EVALUATIONS = 2
"""In an epoch, while the smaller model is fine-tuned: after one of them the training may stop early."""


@dataclass(frozen=True)
class Pruned:
    """A finished pruning run: the folder of the pruned model, and its full record.

    >>> lo.Pruned.load("runs/small").record["heads"]["after"]       # doctest: +SKIP
    {'encoder': [3, 4, 2, 5, 6, 2]}
    """

    folder: Path
    record: Json = field(repr=False)

    @staticmethod
    def load(folder: str | Path) -> "Pruned":
        """Load the run that `prune` wrote to this folder."""
        record = RunFolder(Path(folder)).finished()
        if record is None or "heads" not in record:
            raise UserError(f"{folder} holds no pruned model.")
        return Pruned(Path(folder), record)


def prune(settings: PruningSettings, tuned: dict[int, Score] | None = None) -> Pruned:
    """Prune by these settings and write `settings.training.out`: a checkpoint with fewer heads, ONNX, a record.

    `tuned` has the scores of the whole model by the epochs that it was trained for, for comparison: runs that differ
    only in their budget share it, and it is trained once.
    """
    training = settings.training
    refuse_settings(settings)
    run, root = RunFolder(training.folder), RunFolder(training.folder).work
    run.refuse_another(settings.record(), training.resume)
    if training.resume and run.finished() is not None:
        run.end()
        return _with_onnx(settings)
    _refuse_unfinished(root, settings)
    refuse_language_model(settings)
    refuse_family(settings)
    ready = prepare(training, trained=True)
    refuse_untrained(ready, training.model)
    refuse_few(ready)
    whole = ready.builder.model().eval().to(default_device())
    heads = heads_of(whole, settings.stacks)  # says what is wrong with the stacks before anything is written
    refuse_format(settings, whole)
    refuse_count(settings, whole, heads)
    work = Work(settings, ready, root, heads, {} if tuned is None else tuned)
    try:
        with run.locked(), writing(training.folder, "--resume goes on from what was kept."), quiet():
            _refuse_unfinished(root, settings)
            _begin(root, settings, ready)
            try:
                _run(work, whole)
            except UserError:
                if root.is_dir() and not any(each.is_dir() or each.name == KEPT for each in root.iterdir()):
                    shutil.rmtree(root, ignore_errors=True)  # there is nothing to go on from
                raise
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(f"interrupted; the same command with --resume goes on ({root}).") from interrupt
    return Pruned.load(training.folder)


def _run(work: Work, whole: PreTrainedModel) -> None:
    settings = work.settings
    batch = {name: tensor.to(whole.device) for name, tensor in _sample(work.ready).items()}
    most = savings_by_kind(whole, batch, settings, work.root)
    more: Json = {"kinds": most}
    _say(work, kind_lines(most))
    if settings.counts_heads:
        more |= {"forecast": _forecast(work, whole, batch).record()}
        before = score(whole, work.ready)
        choice = without_heads(work, whole)
        parts = parts_of(whole, settings.stacks, ("heads",))
        other = as_many_heads(parts, choice.kept)
    else:
        budget = budget_of(settings, whole, most)
        _say(work, [] if settings.keep is None else share_lines(settings.keep, budget.parts, settings.only is None))
        before = score(whole, work.ready)
        choice = chosen(work, whole, budget, batch)
        parts, other = budget.parts, as_large(settings, budget.parts, choice.kept)
        more |= {"parts": counts(parts, choice.kept)}
    controls = measure_controls(work, whole, parts, choice.kept, other, choice.free)
    if (note := controls.note()) is not None:
        work.notes.append(note)
    teacher = teacher_of(settings, whole)
    more |= {"settled": _settle(work, choice.model, teacher)}
    model = choice.model.eval().to(whole.device)
    after = score(model, work.ready)
    random = other(at_random(parts, settings.training.seed))
    others = _compared(work, whole, model, random, teacher)
    work.notes += tuned_notes(after, others)
    more |= {name: compared(after, found, work.epochs) for name, found in others.items()}
    record = _record(work, whole, model, before, after, savings(whole, model, batch))
    record |= {"curve": choice.curve, "controls": controls.record()} | more
    _write(work, whole, model, choice.gates, record)


def _say(work: Work, lines: list[str]) -> None:
    if work.settings.training.progress and lines:
        print(*lines, sep="\n", file=sys.stderr)


def _compared(
    work: Work, whole: PreTrainedModel, model: PreTrainedModel, random: Kept, teacher: Teacher | None
) -> dict[str, Score]:
    """Models with the same training: the whole one and, if asked for, a random choice and random weights."""
    settings, epochs, out = work.settings, work.epochs, dict[str, Score]()
    if not epochs:
        return out

    def trained(
        other: PreTrainedModel, folder: str, what: str, rate: float | None = None, teacher: Teacher | None = None
    ) -> Score:
        other.requires_grad_(True)
        _trained_on(work, other, folder, epochs, what, rate, teacher=teacher)
        return score(other.eval().to(whole.device), work.ready)

    if epochs not in work.tuned:
        work.tuned[epochs] = trained(plain_copy(whole), "original", "the whole model, trained as long")
    out["tuned"] = work.tuned[epochs]
    if settings.train_random:
        small = remove_parts(whole, random)
        out["random"] = trained(small, "random", "a random choice, trained as long", teacher=teacher)
    if settings.scratch:
        out["scratch"] = trained(fresh(model), "scratch", "the same shape from random weights", SCRATCH)
    return out


def _forecast(work: Work, whole: PreTrainedModel, batch: Mapping[str, Tensor]) -> Savings:
    """What the wished number of heads can save, said before anything is trained; with λ, what no head would save."""
    settings, heads = work.settings, sum(map(len, work.heads.values()))
    stay = 0 if settings.keep is None else wanted(settings, work.heads)
    made = forecast(whole, work.heads, stay, batch)
    _say(work, forecast_lines(made.record(), stay, heads, settings.keep is None))
    return made


def _refuse_unfinished(root: Path, settings: PruningSettings) -> None:
    if not (root / _RUN).is_file():
        return
    if not settings.training.resume:
        raise UserError(f"an unfinished pruning lies in {root}: pass --resume to go on with it, or delete it.")
    refuse_changes(read_record(root / _RUN).get("settings"), settings.record(), root)


def _begin(root: Path, settings: PruningSettings, ready: Prepared) -> None:
    if (root / _RUN).is_file():
        if read_record(root / _RUN).get("corpus_fingerprint") != ready.fingerprint:
            raise UserError(f"the texts have changed since {root} was interrupted: delete it and start again.")
        return
    cleared(root)
    started = {"settings": settings.record(), "corpus_fingerprint": ready.fingerprint}
    write_whole(root / _RUN, json.dumps(started, indent=1))


def _settle(work: Work, model: PreTrainedModel, teacher: Teacher | None) -> list[Json]:
    """Trains the pruned model a little more, in place; the curve."""
    if not work.settings.settling:
        return []
    what = "heads" if work.settings.counts_heads else "parts"
    return _trained_on(work, model, "settled", work.settings.settling, f"without those {what}", teacher=teacher)


def _trained_on(
    work: Work,
    model: PreTrainedModel,
    folder: str,
    epochs: int,
    what: str,
    rate: float | None = None,
    *,
    teacher: Teacher | None = None,
) -> list[Json]:
    """Ordinary training in place, to the best evaluation on the validation texts; it resumes by itself. The curve."""
    settings = work.settings.training.replace(epochs=epochs, resume=True)
    if settings.evaluate_every is None:
        steps = math.ceil(work.ready.count / (settings.batch_size * settings.accumulate))
        settings = settings.replace(evaluate_every=max(1, math.ceil(steps / EVALUATIONS)))
    settings = settings if rate is None else settings.replace(learning_rate=rate)
    run = RunFolder(work.root / folder)
    run.begin(settings.record(), work.ready.fingerprint)
    set_seed(settings.seed)
    stacks = {"decoder" if name == "cross" else name for name in work.settings.stacks or STACKS}
    freeze_but(model, stacks, work.settings.train)
    name = Path(settings.model).name if Path(settings.model).is_dir() else settings.model
    trainer, _ = fitted(settings, work.ready, run, model, title=f"{name} {what}", teacher=teacher)
    unwrap(model)  # what is measured is measured as the checkpoint computes
    model.requires_grad_(True)
    return curve_of(trainer.state)


def _sample(ready: Prepared) -> dict[str, Tensor]:
    """A batch of validation texts of the middle lengths."""
    middle = max(0, len(ready.validation) // 2 - 8)
    items = [ready.validation[n] for n in range(middle, min(middle + 16, len(ready.validation)))]
    batch = ready.trainer_parts()["data_collator"](items)
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def _record(
    work: Work, whole: PreTrainedModel, model: PreTrainedModel, before: Score, after: Score, saved: Savings
) -> Json:
    training, change = work.settings.training, after.minus(before)
    return {
        "model": training.model,
        "corpus": work.ready.parts.train.name,
        "corpus_fingerprint": work.ready.fingerprint,
        "labels": list(work.ready.parts.labels or ()),
        "seed": training.seed,
        "settings": work.settings.record(),
        "kept_heads": model.config.kept_heads,
        "heads": {"before": count_heads(whole), "after": count_heads(model)},
        "units": {"before": kept_units(whole), "after": kept_units(model)},
        "layers": {"before": kept_layers(whole), "after": kept_layers(model)},
        "before": before.record(),
        "metrics": {"validation": None, "test": None, after.split: after.record()},
        "difference": {"value": change[0], "interval": list(change[1])},
        **saved.record(),
        "notes": [*work.ready.notes, *work.notes],
        "versions": versions(),
        "command": training.command,
    }


def _with_onnx(settings: PruningSettings) -> Pruned:
    """A finished pruning, with the ONNX file if it is wanted now and was not then."""
    done = Pruned.load(settings.training.folder)
    if settings.onnx and not (done.folder / ONNX).is_file():
        model = load(str(done.folder)).model
        if settings.saved_as == "stock" and done.record["layers"]["before"] == done.record["layers"]["after"]:
            model = as_pruned(model, done.record["kept_heads"])
        with quiet():
            export_onnx(model, done.folder / ONNX, example=_sample(prepare(settings.training, trained=True)))
    return done


def _times(work: Work, whole: PreTrainedModel, model: PreTrainedModel, graph: Path | None) -> list[Json]:
    """How long both models take on one thread; writes the graph of the smaller one, if one is wanted."""
    batch = _sample(work.ready)
    if graph is None:
        return runtimes(whole, model, batch, None)
    export_onnx(model, graph, example=batch)
    with TemporaryDirectory() as folder:
        return runtimes(whole, model, batch, (export_onnx(whole, Path(folder) / ONNX, example=batch), graph))


def _write(work: Work, whole: PreTrainedModel, model: PreTrainedModel, gates: HeadGates | None, record: Json) -> None:
    settings, folder = work.settings, work.settings.training.folder
    saved = stock_model(model) if settings.saved_as == "stock" else model
    if cache_is_short(saved):
        saved.generation_config.use_cache = False
        record["notes"].append(
            "it has more decoder than encoder layers, and this version of transformers makes its cache for as many as "
            "the encoder has: the checkpoint says use_cache=False, so that generation works, but takes longer."
        )
    with folder_written_whole(folder, lambda _: set()) as partial:
        saved.save_pretrained(partial)
        work.ready.write(partial, record)
        if gates is not None:
            gates.save(partial)
        record["times"] = _times(work, whole, model, partial / ONNX if settings.onnx else None)
        form = settings.saved_as if settings.saved_as == "pruned" or transformers_knows(saved) else "own"
        said = readme(record, folder, form=form, onnx=settings.onnx)
        (partial / README).write_text(said, encoding="utf-8")
        (partial / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(work.root, ignore_errors=True)
