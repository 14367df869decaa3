"""One model and one draw of texts: three signals of every head, and the loss without many heads at once."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lorgnette import axes
from lorgnette.lens.gating.lens import Gating
from lorgnette.lens.importance.lens import Importance
from lorgnette.lens.norms.lens import Norms
from lorgnette.lens.removal.lens import RANDOM, Removal
from lorgnette.looking.look import look
from lorgnette.results import Result, Results
from lorgnette.subject import Subject, load
from lorgnette.texts import Corpus, Example, corpus
from lorgnette.training import TrainingSettings, train
from lorgnette.training.settings import Splits
from reproductions.frame.running import ready_for_training, rounded
from reproductions.frame.settings import Machine
from reproductions.share_decides.grid import SIGNALS

_KEPT = {"importance": "sensitivity", "gating": "facilitation", "norms": "contribution"}
"""Lens → the variable that holds its signal: the others would be removed by too, each for a pass more."""


def measured(
    *,
    model: str,
    corpus: str,
    seed: int,
    shares: Sequence[float],
    train: int,
    epochs: int,
    words: int,
    ranking: int,
    gating: int,
    gate_steps: int,
    gate_seeds: int,
    test: int,
    controls: int,
    machine: Machine,
) -> dict[str, Any]:
    """Heads are ranked on texts that trained nothing, and removed on others."""
    ready_for_training()
    translation = ":" in corpus
    known, unknown, labels = _texts(corpus, seed, words, max(ranking, gating) + (0 if translation else train), test,
                                    machine)  # fmt: skip
    learnt, held = ([], known) if translation else (known[:train], known[train:])
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        subject = _subject(model, machine, learnt, labels, seed, epochs, Path(folder))
        signals = ranked(subject, held, ranking, gating, gate_steps, gate_seeds)
        signals.save(Path(folder) / "signals")
        removal = Removal(shares, controls, seed, Path(folder) / "signals", "zero")
        data = look(subject, unknown, [removal], truncate=True, progress=False)["removal"].data
    metrics = [name for name in ("loss", "accuracy") if f"{name}_change" in data]
    stacks = {}
    for stack in data[axes.STACK].values.tolist():
        here = data.sel({axes.STACK: stack})
        changes = {
            name: {
                metric: _plain(here[f"{metric}_change"].sel({axes.SIGNAL: name, axes.SHARE: list(shares)}))
                for metric in metrics
            }
            for name in (*SIGNALS, RANDOM)
        }
        stacks[stack] = {"removed": changes, "draws": _plain(here["loss_draw"].sel({axes.SHARE: list(shares)}))}
    return {
        "texts": {"ranking": min(ranking, len(held)), "gating": min(gating, len(held)), "test": len(unknown)},
        "intact": {metric: _plain(data[metric]) for metric in metrics},
        "stacks": stacks,
    }


def ranked(
    subject: Subject, texts: Sequence[Example], ranking: int, gating: int, gate_steps: int, gate_seeds: int
) -> Results:
    """The results of three lenses, each with one signal."""
    looks = (
        (Importance(ablations=()), ranking),
        (Norms(contribution=True, sample=0), ranking),
        (Gating(steps=gate_steps, seeds=range(gate_seeds), texts=gating), gating),
    )
    found = [look(subject, list(texts[:count]), [lens], truncate=True, progress=False)[lens.name]
             for lens, count in looks]  # fmt: skip
    return Results([_only(one, _KEPT[one.lens]) for one in found])


def _only(result: Result, name: str) -> Result:
    kept = [each for each in result.data if each in {name, f"{name}_count"}]
    return Result(result.lens, result.data[kept], result.provenance)


def _texts(
    name: str, seed: int, words: int, count: int, test: int, machine: Machine
) -> tuple[list[Example], list[Example], Any]:
    """Texts to learn from and to rank heads on, others to remove heads on, and the labels of the corpus."""
    first = "validation" if ":" in name else "train"
    parts: list[list[Example]] = []
    labels = None
    for split, number in ((first, count), ("test", test)):
        part = corpus(name, split=split, data=machine.data)
        labels = part.labels
        parts.append([_short(text, words) for text in part.shuffled(seed).take(number)])
    return parts[0], parts[1], labels


def _short(text: Example, words: int) -> Example:
    """Its first words, as plain text; pairs are short as they are."""
    if text.pair is not None or text.target is not None:
        return text
    return replace(text, text=" ".join(text.text.split()[:words]), words=None, rationale=None)


def _subject(
    model: str, machine: Machine, texts: list[Example], labels: Any, seed: int, epochs: int, folder: Path
) -> Subject:
    """A fine-tuned classifier, or a translation model as it comes."""
    place = Path(machine.models or "", model)
    source = str(place) if machine.models and place.is_dir() else model
    if not texts:
        # opus-mt comes as a pickle; the study names the model, so nobody else's file is opened.
        return load(source, device=machine.device, dtype="float32", allow_pickle=True)
    held = max(len(texts) // 10, 8)
    parts = (Corpus.of(texts[held:], labels=labels), Corpus.of(texts[:held], labels=labels))
    settings = TrainingSettings(
        model=source, corpus=Splits(*parts, parts[1]), out=folder / "run", data=machine.data, seed=seed, epochs=epochs,
        learning_rate=5e-5, warmup=0.1, batch_size=16,
    )  # fmt: skip
    return load(str(train(settings).folder), device=machine.device)


def _plain(values: Any) -> Any:
    return rounded(np.asarray(values, dtype=float).tolist())
