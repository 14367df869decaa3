"""One model and one draw of texts: signals of every head, the loss without each, and without many."""

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.lens import get
from lorgnette.lens.agreement.lens import agreement
from lorgnette.lens.base import Lens
from lorgnette.lens.importance.lens import Importance
from lorgnette.lens.removal.lens import Removal
from lorgnette.lens.signals import in_stack, signals_in, table
from lorgnette.looking.look import look
from lorgnette.results import Result, Results
from lorgnette.subject import Subject, load
from lorgnette.texts import Corpus, Example, corpus
from lorgnette.training import TrainingSettings, train
from reproductions.frame.running import ready_for_training
from reproductions.frame.settings import Machine

_DIGITS = 6
_WORDS = (32, 128)
"""Paragraphs of Wikipedia for a language model have so many words."""


def measured(
    *,
    model: str,
    corpus: str,
    task: str,
    seed: int,
    lenses: Sequence[str],
    shares: Sequence[float],
    ranking: int,
    gating: int,
    test: int,
    controls: int,
    gate_steps: int,
    train: int,
    epochs: int,
    translation_epochs: int,
    machine: Machine,
) -> dict[str, Any]:
    """Heads are ranked on one draw of texts, and removed on others: nothing is judged on the texts that ranked it."""
    ready_for_training()
    training = {"limit": train, "epochs": epochs} if task == "classifier" else {"epochs": translation_epochs}
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        subject = _subject(model, corpus, task, seed, Path(folder), machine, training)
        torch.set_float32_matmul_precision("highest")  # training may round products; sums of effects must be exact
        known, unknown = _texts(corpus, task, seed, max(ranking, gating), test, machine)
        looks = {name: (_lens(name), known[:ranking]) for name in lenses}
        looks["gating"] = (get("gating", steps=gate_steps, texts=gating), known[:gating])
        signals, left_out = _signals(subject, looks)
        signals.save(Path(folder) / "signals")
        judged = look(
            subject,
            unknown,
            [Importance(("zero", "mean")), Removal(shares, controls, seed, Path(folder) / "signals", "zero")],
            truncate=True,
            progress=False,
        )
    return {
        "texts": {"ranking": min(ranking, len(known)), "test": len(unknown)},
        "left_out": left_out,
        "stacks": {
            stack: _of_stack(stack, signals, judged, shares)
            for stack in judged["removal"].data[axes.STACK].values.tolist()
        },
    }


def _lens(name: str) -> Lens:
    """The lens as the cells were measured with it: effects were those of heads set to zero."""
    return get(name, ablation="zero") if name.partition(":")[0] == "effects" else get(name)


def _signals(subject: Subject, looks: Mapping[str, tuple[Lens, list[Example]]]) -> tuple[Results, dict[str, str]]:
    """The results of every lens that can look at this model, and why others cannot."""
    found, left_out = [], {}
    for name, (lens, texts) in looks.items():
        try:
            found.append(look(subject, texts, [lens], truncate=True, progress=False)[lens.name])
        except UserError as error:
            left_out[name] = str(error)
    return Results(found), left_out


def _of_stack(stack: str, signals: Mapping[str, Result], judged: Mapping[str, Result], shares: Sequence[float]) -> Any:
    """Everything that the page needs of a stack, as plain numbers."""
    single = agreement(_judged_elsewhere(signals, judged["importance"])).data.sel({axes.STACK: stack})
    joint = judged["removal"].data.sel({axes.STACK: stack})
    own = in_stack(signals_in(signals), stack)
    values, _, _ = table(own, stack)
    out: dict[str, Any] = {"heads": values.shape[1], "signals": {}, "removed": {}}
    for name, row in zip(own, values, strict=True):
        cell = {axes.SIGNAL: name}
        out["signals"][name] = {
            "values": _plain(row),
            "reliability": _plain(single["reliability"].sel(cell)),
            **{
                f"{key}_{how}": _plain(single[key].sel(cell | {axes.SIGNAL_B: f"ablation_{how}"}))
                for how in ("zero", "mean")
                for key in ("spearman", "spearman_low", "spearman_high", "within", "ceiling")
            },
        }
    metrics = [name for name in ("loss", "accuracy") if f"{name}_change" in joint]
    for name in joint[axes.SIGNAL].values.tolist():
        out["removed"][name] = {
            f"{metric}{tail}": _plain(
                joint[f"{metric}_change{tail}"].sel({axes.SIGNAL: name, axes.SHARE: list(shares)})
            )
            for metric in metrics
            for tail in ("", "_se")
        }
    out["intact"] = {metric: _plain(joint[metric]) for metric in metrics}
    return out


def _judged_elsewhere(signals: Mapping[str, Result], removal: Result) -> dict[str, Result]:
    """The signals of the ranking texts, with the ablations of the others in place of their own."""
    own = signals["importance"]
    names = [name for name in removal.data if str(name).startswith("loss_change")]
    data = own.data.drop_vars([name for name in names if name in own.data]).assign(removal.data[names])
    return {**signals, "importance": Result("importance", data, own.provenance)}


def _plain(values: xr.DataArray | np.ndarray) -> Any:
    """Numbers with six digits, None for what is not there."""
    array = np.asarray(values, dtype=float)
    rounded = [None if np.isnan(x) else float(f"{x:.{_DIGITS}g}") for x in array.ravel()]
    return rounded if array.ndim else rounded[0]


def _subject(
    model: str, corpus: str, task: str, seed: int, folder: Path, machine: Machine, training: Mapping[str, Any]
) -> Subject:
    if task == "classifier" or model == "marian-small":
        more = {"learning_rate": 5e-5, "warmup": 0.1, "batch_size": 32} if task == "classifier" else {"batch_size": 256}
        settings = TrainingSettings(
            model=_place(model, machine), corpus=corpus, out=folder / "run", data=machine.data, seed=seed,
            test_limit=100, **more, **training,
        )  # fmt: skip
        return load(str(train(settings).folder), device=machine.device)
    # opus-mt comes as a pickle; the study names the model, so nobody else's file is opened.
    return load(_place(model, machine), device=machine.device, dtype="float32", allow_pickle=True)


def _place(model: str, machine: Machine) -> str:
    folder = Path(machine.models or "", model)
    return str(folder) if machine.models and folder.is_dir() else model


def _texts(
    name: str, task: str, seed: int, ranking: int, test: int, machine: Machine
) -> tuple[list[Example], list[Example]]:
    """Texts to rank heads on, from the validation split, and texts to remove them on, from the test split."""
    out = []
    for split, count in (("validation", ranking), ("test", test)):
        part: Corpus | list[Example] = corpus(name, split=split, data=machine.data)
        texts = list(part)
        if task == "language":
            texts = [text for text in texts if _WORDS[0] <= len((text.text or "").split()) <= _WORDS[1]]
        out.append(random.Random(f"{seed} {split}").sample(texts, min(count, len(texts))))
    return out[0], out[1]
