"""`prune`: choose heads, remove them for good, train the rest a little, and say what it cost and what it saved."""

import json
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor
from transformers import set_seed

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.files import cleared, folder_written_whole, writing, written_whole
from lorgnette.models.pruned.checkpoint import as_pruned
from lorgnette.models.pruned.stock import stock_model
from lorgnette.results.provenance import versions
from lorgnette.subject import Subject, load
from lorgnette.subject.subject import _own_device
from lorgnette.training.arguments import processes
from lorgnette.training.build import is_preset, opened
from lorgnette.training.folder import RECORD, RunFolder, _read, _refuse_changes
from lorgnette.training.gates.gates import HeadGates, freeze_but, heads_of
from lorgnette.training.gates.run import fit_gates, refuse_untrained, wanted
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.pruning.controls import Controls, measure_controls
from lorgnette.training.pruning.export import export_onnx, refuse_without_packages
from lorgnette.training.pruning.ranking import TEXTS, agreement_scores, importance_scores, top_heads
from lorgnette.training.pruning.removal import count_heads, plain_copy, remove_heads
from lorgnette.training.pruning.score import Score, score
from lorgnette.training.pruning.sentences import forecast_lines, readme
from lorgnette.training.pruning.settings import STACKS, PruningSettings
from lorgnette.training.pruning.speed import Savings, forecast, savings
from lorgnette.training.run import fitted, quiet
from lorgnette.types import Json, PreTrainedModel

ONNX, README = "model.onnx", "README.md"
_RUN, _KEPT = "run.json", "kept.json"


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


@dataclass
class _Work:
    """What one pruning has at hand: `root` keeps what an interrupted one leaves."""

    settings: PruningSettings
    ready: Prepared
    root: Path
    heads: Mapping[Site, Sequence[int]]
    """Those that could go."""
    notes: list[str] = field(default_factory=list)


def prune(settings: PruningSettings) -> Pruned:
    """Prune by these settings and write `settings.training.out`: a checkpoint with fewer heads, ONNX, a record."""
    training = settings.training
    _refuse(settings)
    run, root = RunFolder(training.folder), RunFolder(training.folder).work
    run.refuse_another(settings.record(), training.resume)
    if training.resume and run.finished() is not None:
        run.end()
        return _with_onnx(settings)
    _refuse_unfinished(root, settings)
    _refuse_language_model(settings)
    ready = prepare(training, trained=True)
    refuse_untrained(ready, training.model)
    whole = ready.builder.model().eval().to(_own_device())
    heads = heads_of(whole, settings.stacks)  # says what is wrong with the stacks before anything is written
    _refuse_format(settings, whole)
    work = _Work(settings, ready, root, heads)
    try:
        with run.locked(), writing(training.folder, "--resume goes on from what was kept."), quiet():
            _refuse_unfinished(root, settings)
            _begin(root, settings, ready)
            _run(work, whole)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(f"interrupted; the same command with --resume goes on ({root}).") from interrupt
    return Pruned.load(training.folder)


def _refuse_language_model(settings: PruningSettings) -> None:
    """Say what is wrong before anything about the corpus is: no corpus makes a language model a classifier."""
    training = settings.training
    if is_preset(training):
        return
    checkpoint = opened(training)
    names = [] if checkpoint.folder is None else checkpoint.config().architectures or []
    if checkpoint.gguf is not None or any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        kind = names[0] if names else "a GGUF file"
        raise UserError(
            f"{training.model!r} is a language model ({kind}), and prune takes classifiers and translation models. "
            "Rank its heads with `lorgnette look --lens importance`, and remove them with "
            'lo.remove_heads(subject, ["3.7", …]).'
        )


def _run(work: _Work, whole: PreTrainedModel) -> None:
    batch = {name: tensor.to(whole.device) for name, tensor in _sample(work.ready).items()}
    expected = _forecast(work, whole, batch)
    before = score(whole, work.ready)
    model, gates, curve, heads_left = _pruned(work, whole)
    _refuse_empty(work.settings, model)
    controls = _controls(work, whole, heads_left)
    _settle(work, model)
    model = model.eval().to(whole.device)
    after = score(model, work.ready)
    record = _record(work, whole, model, before, after, savings(whole, model, batch))
    record |= {"forecast": expected.record(), "curve": curve, "controls": controls.record()}
    _write(work, model, gates, record)


def _forecast(work: _Work, whole: PreTrainedModel, batch: Mapping[str, Tensor]) -> Savings:
    """What the wished size can save, said before anything is trained; with λ, what no head at all would save."""
    settings, heads = work.settings, sum(map(len, work.heads.values()))
    stay = 0 if settings.keep is None else wanted(settings, work.heads)
    made = forecast(whole, work.heads, stay, batch)
    if settings.training.progress:
        print(*forecast_lines(made.record(), stay, heads, settings.keep is None), sep="\n", file=sys.stderr)
    return made


def _refuse(settings: PruningSettings) -> None:
    if is_preset(settings.training):
        raise UserError(
            f"{settings.training.model!r} is a preset, not a trained model: train it first (lorgnette train "
            f"{settings.training.model} …), then prune the folder that comes out."
        )
    if processes().num_processes > 1:
        raise UserError("pruning runs in one process: start it without torchrun.")
    if settings.onnx:
        refuse_without_packages()


def _refuse_format(settings: PruningSettings, whole: PreTrainedModel) -> None:
    known = any(base.__module__.startswith("transformers.models.") for base in type(whole).__mro__)
    if settings.format == "stock" and not known:
        raise UserError(
            f"--format stock is for models that transformers knows by itself; {type(whole).__name__} needs Lorgnette "
            "whatever its heads: leave --format out."
        )


def _refuse_unfinished(root: Path, settings: PruningSettings) -> None:
    if not (root / _RUN).is_file():
        return
    if not settings.training.resume:
        raise UserError(f"an unfinished pruning lies in {root}: pass --resume to go on with it, or delete it.")
    _refuse_changes(_read(root / _RUN).get("settings"), settings.record(), root)


def _begin(root: Path, settings: PruningSettings, ready: Prepared) -> None:
    if (root / _RUN).is_file():
        if _read(root / _RUN).get("corpus_fingerprint") != ready.fingerprint:
            raise UserError(f"the texts have changed since {root} was interrupted: delete it and start again.")
        return
    cleared(root)
    started = {"settings": settings.record(), "corpus_fingerprint": ready.fingerprint}
    with written_whole(root / _RUN) as partial:
        partial.write_text(json.dumps(started, indent=1), encoding="utf-8")


def _controls(work: _Work, whole: PreTrainedModel, heads_left: Mapping[Site, Sequence[int]]) -> Controls:
    """The choice beside random sets; a note where it is no better than they are."""
    settings = work.settings
    made = measure_controls(
        whole, work.ready, work.heads, heads_left, sets=settings.controls, seed=settings.training.seed
    )
    if (note := made.note()) is not None:
        work.notes.append(note)
    return made


def _pruned(
    work: _Work, whole: PreTrainedModel
) -> tuple[PreTrainedModel, HeadGates | None, list[Json], dict[Site, list[int]]]:
    """The model without the heads that go, by gates or by a ranking; and the heads that stay."""
    settings = work.settings
    if settings.method != "gates":
        heads_left = _ranked(work, whole)
        return remove_heads(whole, heads_left), None, [], heads_left
    run = RunFolder(work.root / "gates")
    run.begin(settings.record(), work.ready.fingerprint)
    model = plain_copy(whole)
    gates, curve = fit_gates(settings, work.ready, run, model)
    heads_left = (
        _closed(work, gates) if settings.keep is None else _strongest(work, gates, wanted(settings, work.heads))
    )
    return remove_heads(model, heads_left, factors=_factors(gates, heads_left)), gates, curve, heads_left


def _closed(work: _Work, gates: HeadGates) -> dict[Site, list[int]]:
    """The heads whose gate is not closed; what is doubtful about it becomes a note."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        heads_left = gates.remaining_heads(work.settings.rule)
    work.notes += [str(one.message) for one in said]
    if sum(map(len, heads_left.values())) == len(gates.log_alpha):
        work.notes.append(
            f"no gate closed (λ = {work.settings.pressure:g}), so no head was removed: give a larger --lambda, more "
            "--epochs, or --keep."
        )
    return heads_left


def _strongest(work: _Work, gates: HeadGates, count: int) -> dict[Site, list[int]]:
    """As many heads as are wanted; a note if gates have not said that the others can go."""
    tied = gates.tied(count)
    if tied == len(gates.log_alpha):
        shutil.rmtree(work.root, ignore_errors=True)  # there is nothing to go on from
        raise UserError(
            "all gates are equal after this training, so there is no basis to choose heads: train longer "
            "(--epochs, more texts), or choose by --method importance."
        )
    if tied:
        work.notes.append(f"{tied} gates have the same log α, and not all of them could stay: the first by number did.")
    if gates.open_heads > count:
        work.notes.append(
            f"{gates.open_heads} gates were open when {count} heads were to stay: the {gates.open_heads - count} with "
            "the smallest log α went all the same. Train longer (--epochs), or with a larger --gates-learning-rate."
        )
    return gates.strongest(count)


def _factors(gates: HeadGates, heads_left: dict[Site, list[int]]) -> dict[Site, Tensor]:
    """ẑ goes into the weights. A head that is kept though its gate is closed would say nothing: it gets 1."""
    factors = {}
    for site, values in gates.values().items():
        dead = [
            number in heads_left[site] and value == 0 for number, value in zip(gates.heads[site], values, strict=True)
        ]
        factors[site] = values.masked_fill(values.new_tensor(dead).bool(), 1.0)
    return factors


def _ranked(work: _Work, whole: PreTrainedModel) -> dict[Site, list[int]]:
    settings, file = work.settings, work.root / _KEPT
    if file.is_file():
        return {Site(*place): numbers for *place, numbers in _read(file)["kept"]}
    subject = Subject(whole, work.ready.builder.tokenizer, name=settings.training.model)
    scores = importance_scores if settings.method == "importance" else agreement_scores
    texts = work.ready.parts.validation.take(TEXTS)
    importance = scores(subject, texts, progress=settings.training.progress)
    heads_left = top_heads(importance, wanted(settings, work.heads), settings.stacks)
    with written_whole(file) as partial:
        rows = [[site.stack, site.kind, site.layer, numbers] for site, numbers in heads_left.items()]
        partial.write_text(json.dumps({"kept": rows}), encoding="utf-8")
    return heads_left


def _settle(work: _Work, model: PreTrainedModel) -> None:
    """Trains the pruned model a little more, in place: ordinary training, which resumes by itself."""
    if work.settings.settling == 0:
        return
    settings = work.settings.training.replace(epochs=work.settings.settling, resume=True)
    run = RunFolder(work.root / "settled")
    run.begin(settings.record(), work.ready.fingerprint)
    set_seed(settings.seed)
    stacks = {"decoder" if name == "cross" else name for name in work.settings.stacks or STACKS}
    freeze_but(model, stacks, work.settings.train)
    name = Path(settings.model).name if Path(settings.model).is_dir() else settings.model
    fitted(settings, work.ready, run, model, title=f"{name} without those heads")
    model.requires_grad_(True)


def _refuse_empty(settings: PruningSettings, model: PreTrainedModel) -> None:
    empty = [
        f"{name} layer {n + 1}" for name, layers in count_heads(model).items() for n, h in enumerate(layers) if not h
    ]
    if empty and not settings.allow_empty:
        shown = ", ".join(empty[:4]) + (" …" if len(empty) > 4 else "")
        raise UserError(
            f"no head is left in {shown}: such a layer is only its feed-forward part. Pass --allow-empty to save it "
            "(with --resume nothing is trained again), or keep more heads."
        )


def _sample(ready: Prepared) -> dict[str, Tensor]:
    """A batch of validation texts of the middle lengths."""
    middle = max(0, len(ready.validation) // 2 - 8)
    items = [ready.validation[n] for n in range(middle, min(middle + 16, len(ready.validation)))]
    batch = ready.trainer_parts()["data_collator"](items)
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def _record(
    work: _Work, whole: PreTrainedModel, model: PreTrainedModel, before: Score, after: Score, saved: Savings
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
        if settings.format == "stock":
            model = as_pruned(model, done.record["kept_heads"])
        with quiet():
            export_onnx(model, done.folder / ONNX, example=_sample(prepare(settings.training, trained=True)))
    return done


def _write(work: _Work, model: PreTrainedModel, gates: HeadGates | None, record: Json) -> None:
    settings, folder = work.settings, work.settings.training.folder
    with folder_written_whole(folder, lambda _: set()) as partial:
        (stock_model(model) if settings.format == "stock" else model).save_pretrained(partial)
        work.ready.write(partial, record)
        if gates is not None:
            gates.save(partial)
        if settings.onnx:
            export_onnx(model, partial / ONNX, example=_sample(work.ready))
        said = readme(record, folder, form=settings.format, onnx=settings.onnx)
        (partial / README).write_text(said, encoding="utf-8")
        (partial / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(work.root, ignore_errors=True)
