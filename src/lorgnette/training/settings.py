"""What a training run is told."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lorgnette.errors import UserError, near
from lorgnette.texts.corpus import Corpus
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.training.penalties import Penalty

SELECTIONS: Final = ("loss", "cross_entropy", "accuracy", "bleu")
_NOT_THE_RUN = (
    "out",
    "resume",
    "progress",
    "command",
    "keep_checkpoints",
)  # may differ between a run and its continuation


@dataclass(frozen=True)
class Splits:
    """The three parts of a corpus that is not read by name; without `validation` a share of `train` is taken."""

    train: Corpus
    validation: Corpus | None = None
    test: Corpus | None = None


@dataclass(frozen=True)
class TrainingSettings:
    """One run of one seed. None means: what suits the model (see `resolved`).

    model        a preset ("tp9-residual"), or a pretrained model to fine-tune: a folder or hub name
    corpus       whatever `lorgnette.corpus` takes (a name, a path, a `datasets.DatasetDict`, a data frame), or `Splits`
    overrides    fields of the preset's config: {"layers": 2, "positions": "learnt"}
    embeddings   "glove" (the folder glove_100d of the data), "random", a path of vectors, or "model:NAME" (the
                 input vectors of a pretrained model)
    vocabulary   "train" (the words of the training texts) or "vectors" (those of the vectors, also unseen ones)
    validation   the share of the training texts that decides when to stop, where the corpus has no such split
    select       which validation number is best: "loss" (penalties included), "cross_entropy", "accuracy" or, of
                 translations, "bleu"
    keep_last    the weights of the last step are kept, not the best ones; `patience` still says when to stop
    keep_checkpoints    the weights at every evaluation are kept too, in checkpoint-STEP below `out`, for `look`
    epochs       at most so many; None: 20 for presets and translators, 3 to fine-tune a classifier
    learning_rate, warmup    the step size, and the steps over which it grows (below 1: their share of all steps);
                 None: 1e-3 for presets, and 2e-5 with a tenth of warm-up to fine-tune a classifier
    label_smoothing, beams   of translation models: ε of the loss, and the beam of the translations that are scored
    limit        only the first N training texts; `test_limit` of the test texts
    labels       which class of a trained classifier each label of the corpus is, where their names differ
    """

    model: str
    corpus: object
    out: Path | str
    _: KW_ONLY
    overrides: Mapping[str, Any] = field(default_factory=dict)
    embeddings: str | None = None
    freeze: bool | None = None
    vocabulary: str | None = None
    max_vocabulary: int | None = None
    min_count: int = 1
    style: str = "default"
    penalties: "tuple[Penalty, ...]" = ()
    seed: int = 0
    epochs: int | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    warmup: float | None = None
    label_smoothing: float | None = None
    beams: int = 1
    weight_decay: float = 0.0
    gradient_norm: float = 1.0
    batch_size: int = 64
    accumulate: int = 1
    patience: int = 5
    select: str = "loss"
    keep_last: bool = False
    keep_checkpoints: bool = False
    evaluate_every: int | None = None
    max_length: int | None = None
    validation: float = 0.1
    split_seed: int = 0
    test_split: str = "test"
    limit: int | None = None
    test_limit: int | None = None
    stream: bool = False
    label_column: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    text_column: str = "text"
    data: Path | str | None = None
    allow_pickle: bool = False
    bf16: bool = False
    fp16: bool = False
    resume: bool = False
    progress: bool = False
    command: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.corpus, os.PathLike):
            object.__setattr__(self, "corpus", os.fspath(self.corpus))
        elif not isinstance(self.corpus, str | Splits):
            object.__setattr__(self, "corpus", self._splits())
        for name in ("batch_size", "accumulate", "patience", "min_count", "beams"):
            _at_least(name, getattr(self, name), 1)
        for name in ("epochs", "evaluate_every", "max_length", "limit", "test_limit", "max_vocabulary"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        for name in ("warmup", "weight_decay", "gradient_norm", "seed", "split_seed"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 0)
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise UserError(f"label_smoothing must be at least 0 and below 1; got {self.label_smoothing}.")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise UserError(f"learning_rate must be above 0; got {self.learning_rate}.")
        if not 0 < self.validation < 1:
            raise UserError(f"validation is a share of the training texts, between 0 and 1; got {self.validation}.")
        _one_of("select", self.select, SELECTIONS)
        if self.vocabulary is not None:
            _one_of("vocabulary", self.vocabulary, ("train", "vectors"))
        if self.bf16 and self.fp16:
            raise UserError("bf16 and fp16 are two precisions: choose one.")

    def _splits(self) -> Splits:
        """The parts of a data set in memory; what is no dict of splits is training texts."""
        from lorgnette.texts import corpus
        from lorgnette.texts.named import SAME_SPLIT

        opened = partial(corpus, text_column=self.text_column, label_column=self.label_column)
        given = self.corpus
        if not isinstance(given, Mapping) or self.text_column in given:
            return Splits(opened(given))
        validation = next((split for split in SAME_SPLIT if split in given), None)
        return Splits(
            opened(given, split="train"),
            None if validation is None else opened(given, split=validation),
            opened(given, split=self.test_split) if self.test_split in given else None,
        )

    @property
    def folder(self) -> Path:
        return Path(self.out)

    def replace(self, **changes: Any) -> "TrainingSettings":
        return dataclasses.replace(self, **changes)

    def record(self) -> Json:
        """The settings as plain values: what is written beside the model and must be the same to go on."""
        out: Json = {}
        for each in dataclasses.fields(self):
            if each.name in _NOT_THE_RUN:
                continue
            value = getattr(self, each.name)
            if each.name == "penalties":
                value = [penalty.record() for penalty in value]
            elif isinstance(value, Splits):
                value = value.train.name
            elif isinstance(value, Path):
                value = str(value)
            elif isinstance(value, Mapping):
                value = dict(value)
            out[each.name] = value
        del out["data"]  # where the files lie is not what they are: the fingerprint is
        return json.loads(json.dumps(out))  # tuples become lists here, as they will in the file


_MOST = {"batch_size": 1 << 20, "seed": 2**32 - 1, "split_seed": 2**32 - 1}
"""What libraries can take: a batch has a place in memory for each of its texts, NumPy's seeds have 32 bits."""


def _at_least(name: str, value: float | int, least: int) -> None:
    most = _MOST.get(name, 2**31 - 1)
    if not least <= value <= most:
        raise UserError(f"{name} must be at least {least} and at most {most}; got {str(value)[:40]}.")


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}; got {value!r}.{near(value, choices)}")
