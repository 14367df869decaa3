"""One run of Nguyen et al. 2022: a BiLSTM with attention, an entropy penalty, and whom its attention convinces."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lorgnette.attending import Recorder
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.subject import Subject
from lorgnette.texts import Example
from lorgnette.training import EntropyPenalty, TrainingSettings, train
from reproductions.frame.plausible import marked_examples, measured
from reproductions.frame.running import numbers_of, ready_for_training
from reproductions.frame.settings import Machine
from reproductions.frame.tokens import store, stored
from reproductions.frame.wide_vectors import with_vectors

PRESET = "bilstm-attention"
_BATCH = 128


def settings_of(*, strength: float, width: int, **rest: Any) -> TrainingSettings:
    """Adam at 1e-3, the best epoch by validation loss, trained vectors, no dropout."""
    return TrainingSettings(
        model=PRESET,
        overrides={"width": width},
        freeze=False,
        vocabulary="train",
        penalties=(EntropyPenalty(strength),),
        **rest,
    )


def prepare_texts(arguments: Mapping[str, Any], machine: Machine) -> None:
    """Writes the token ids that a cell with these arguments reads, unless they are there."""
    told = {key: value for key, value in arguments.items() if key != "draws"}
    told = with_vectors(told, machine.data)
    store(settings_of(**told, data=machine.data, out=machine.scratch), machine.scratch)


def trained(*, machine: Machine, draws: int, **told: Any) -> dict[str, Any]:
    """Trains one model, measures how plausible its attention is, and keeps the numbers."""
    ready_for_training()
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        settings = settings_of(**with_vectors(told, machine.data), data=machine.data, out=Path(folder) / "run")
        prepared = stored(settings, machine.scratch)
        run = train(settings, prepared=prepared)
        model = SelfAttentionClassifier.from_pretrained(run.folder).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    subject = Subject(model, prepared.builder.tokenizer)
    examples = marked_examples(told["corpus"], machine.data, told["test_limit"])
    words = list(word_scores(subject, examples, told["max_length"]))
    return {**numbers_of(run), "plausibility": measured(words, examples, draws)}


def word_scores(subject: Subject, examples: Sequence[Example], max_length: int) -> Iterator[Tensor]:
    """For each text the attention on each of its words: the sum over the word's tokens, 0 for a word without one."""
    recorder = Recorder(lambda call: call.block(rows=[0])[:, 0, 0])  # the one row of an attention pooler
    for start in range(0, len(examples), _BATCH):
        chosen = examples[start : start + _BATCH]
        batch = subject.encode(chosen)
        if batch.source.ids.shape[1] > max_length:
            raise ValueError(f"a test text has {batch.source.ids.shape[1]} tokens, more than {max_length}")
        with torch.no_grad(), subject.tapped(recorder):
            subject.run(batch)
        (rows,) = recorder.records.values()
        for row, place, example in zip(rows.double().cpu(), batch.source.word.cpu(), chosen, strict=True):
            assert example.words is not None
            there = place >= 0
            yield torch.zeros(len(example.words), dtype=torch.float64).index_add_(0, place[there], row[there])
