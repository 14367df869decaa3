"""What a training run is told."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from lorgnette.constraints import Interval, NotEmpty, OneOf, Seed, Share, check
from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.training.penalties import Penalty

RUN: Final = "The run"
_SHAPE, _LOSS, _TEXTS = "The model (presets)", "The loss", "The corpus"
MOST: Final = 2**31 - 1
"""The largest integer that the libraries take."""
Count = Annotated[int, Interval(1, MOST)]
Positive = Annotated[float, Interval(0, closed="right")]
NotNegative = Annotated[float, Interval(0, MOST)]
SCHEDULES: Final = (
    *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"),
)
"""Those of transformers that take no more than the steps and the warm-up."""
NOT_THE_RUN = (
    "out",
    "resume",
    "progress",
    "command",
    "keep_checkpoints",
)  # may differ between a run and its continuation


@dataclass(frozen=True)
class Shown:
    """How the commands show a field of the settings; a field without it is an argument of the functions alone.

    names       its option, where it is not the name of the field; metavar: what stands for its value
    default     what None comes to; variable: the environment variable that sets it
    only        the one command that shows it
    """

    panel: str
    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    default: str | None = None
    variable: str | None = None
    only: str | None = None


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
    schedule     how the step size goes on; None: constant for presets, falling for all else
    label_smoothing, beams   of translation models: ε of the loss, and the beam of the translations that are scored
    limit        only the first N training texts; `test_limit` of the test texts
    labels       which class of a trained classifier each label of the corpus is, where their names differ
    """

    model: Annotated[str, Shown("", "A preset (lorgnette list presets), or a model to fine-tune.")]
    corpus: Annotated[
        object,
        Shown(
            _TEXTS,
            "A file (.txt .csv .tsv .jsonl .parquet .tar .conllu, also .gz .bz2 .xz .zst), several files "
            "('parts/*.parquet'), an address (s3://…), a named corpus, or a data set on the hub.",
            names=("--corpus", "-c"),
        ),
    ]
    out: Annotated[Path | str, Shown(RUN, "The folder for the trained model.", names=("--out", "-o"))]
    _: KW_ONLY
    overrides: Annotated[
        Mapping[str, Any],
        Shown(_SHAPE, "Set any other field of the config.", names=("--set",), metavar="NAME=VALUE", only="train"),
    ] = field(default_factory=dict)
    embeddings: Annotated[str | None, Shown(_SHAPE, "glove, random, a vectors file, or model:NAME.", only="train")] = (
        None
    )
    freeze: Annotated[
        bool | None,
        Shown(_SHAPE, "Freeze the word vectors, or train them.", names=("--freeze/--train-embeddings",), only="train"),
    ] = None
    style: Annotated[
        str, Shown(_SHAPE, "Tokenizer: default, or whitespace (as in the TP 9 starter code).", only="train")
    ] = "default"
    vocabulary: Annotated[
        Annotated[str, OneOf(("train", "vectors"))] | None,
        Shown(_SHAPE, "Vocabulary: the words of the training texts (train) or of the vectors (vectors).", only="train"),
    ] = None
    max_vocabulary: Count | None = None
    min_count: Count = 1
    penalties: "tuple[Penalty, ...]" = ()
    seed: Annotated[Seed, Shown(RUN, "Random seed.", only="prune")] = 0
    epochs: Annotated[Count | None, Shown(RUN, "Maximum number of epochs.", default="20, pretrained 3")] = None
    learning_rate: Annotated[Positive | None, Shown(_LOSS, "Learning rate.", default="1e-3, pretrained 2e-5")] = None
    schedule: Annotated[str, OneOf(SCHEDULES)] | None = None
    warmup: Annotated[
        NotNegative | None,
        Shown(_LOSS, "Warm-up steps; below 1, a fraction of all steps.", default="pretrained 0.1", only="train"),
    ] = None
    label_smoothing: Annotated[
        Annotated[float, Interval(0, 1, "left")] | None,
        Shown(_LOSS, "Label smoothing (translation).", default="0.1", only="train"),
    ] = None
    weight_decay: Annotated[NotNegative, Shown(_LOSS, "Decoupled weight decay.", only="train")] = 0.0
    gradient_norm: NotNegative = 1.0
    batch_size: Annotated[int, Interval(1, 1 << 20), Shown(RUN, "Texts per batch.")] = 64
    accumulate: Count = 1
    patience: Annotated[Count, Shown(RUN, "Stop after this many evaluations without improvement.", only="train")] = 5
    select: Annotated[
        Annotated[str, OneOf(("loss", "cross_entropy", "accuracy", "bleu"))],
        Shown(RUN, "Metric that selects the best epoch: loss, cross_entropy, accuracy or bleu.", only="train"),
    ] = "loss"
    keep_last: Annotated[bool, Shown(RUN, "Keep the last weights instead of the best.", only="train")] = False
    keep_checkpoints: Annotated[
        bool,
        Shown(RUN, "Keep the weights of every evaluation too, in OUT/checkpoint-STEP, for look OUT/checkpoint-*.",
              only="train"),
    ] = False  # fmt: skip
    evaluate_every: Annotated[
        Count | None, Shown(RUN, "Steps between evaluations (and checkpoints).", default="an epoch", only="train")
    ] = None
    beams: Annotated[Count, Shown(RUN, "Beam size for the scored translations.")] = 1
    allow_pickle: Annotated[bool, Shown(RUN, "Read weights from a pickle, which can run code.")] = False
    bf16: Annotated[bool, Shown(RUN, "Train in bfloat16.")] = False
    fp16: Annotated[bool, Shown(RUN, "Train in float16 (GPU).", only="train")] = False
    resume: Annotated[bool, Shown(RUN, "Resume the interrupted run in --out.")] = False
    max_length: Annotated[
        Count | None,
        Shown(_TEXTS, "Truncate longer texts (the count is reported).", default="the model's, presets 500"),
    ] = None
    validation: Annotated[
        Share,
        Shown(_TEXTS, "Fraction of the training texts to validate on if there is no validation split.", only="train"),
    ] = 0.1
    split_seed: Seed = 0
    test_split: Annotated[str, Shown(_TEXTS, "The split to test on.")] = "test"
    limit: Annotated[Count | None, Shown(_TEXTS, "Use only the first N training texts.", metavar="N")] = None
    test_limit: Annotated[Count | None, Shown(_TEXTS, "Use only the first N test texts.", metavar="N")] = None
    stream: Annotated[bool, Shown(_TEXTS, "Stream the texts instead of loading them all.", only="train")] = False
    text_column: Annotated[str, Shown(_TEXTS, "The column with the text.")] = "text"
    label_column: Annotated[str | None, Shown(_TEXTS, "The column with the label.")] = None
    labels: Annotated[
        Mapping[str, str],
        Shown(_TEXTS, "Maps labels of the corpus to classes of the model where their names differ.",
              metavar="LABEL=CLASS,…"),
    ] = field(default_factory=dict)  # fmt: skip
    data: Annotated[
        Path | str | None, Shown(_TEXTS, "The folder with the named corpora.", variable="LORGNETTE_DATA")
    ] = None
    progress: bool = False
    command: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.corpus, os.PathLike):
            object.__setattr__(self, "corpus", os.fspath(self.corpus))
        elif not isinstance(self.corpus, str | Splits):
            object.__setattr__(self, "corpus", self._splits())
        for each in dataclasses.fields(self):
            if not isinstance(each.type, str) and (value := getattr(self, each.name)) is not each.default:
                check(value, each.type, f"`{each.name}`")
        if self.schedule == "constant" and self.warmup:
            raise UserError("The schedule 'constant' has no warm-up: use 'constant_with_warmup', or omit `warmup`.")
        if self.bf16 and self.fp16:
            raise UserError("`bf16` and `fp16` are two precisions: choose one.")

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
            if each.name in NOT_THE_RUN:
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
        del out["data"]  # the fingerprint identifies a corpus, not its path
        return json.loads(json.dumps(out))  # tuples become lists here, as they will in the file


SIZES = ("layers", "heads", "width", "positions", "pooling", "dropout")
"""Fields of a preset's config that have a name of their own."""


@dataclass(frozen=True, kw_only=True)
class TrainKeywords(TrainingSettings):
    """What `train` takes: the settings, several seeds, and by plain names what the settings have as objects."""

    seeds: Annotated[
        Annotated[Sequence[Seed], NotEmpty()] | None,
        Shown(RUN, "One seed, or several, comma-separated.", default="0"),
    ] = None
    layers: Annotated[Annotated[int, Interval(0)] | None, Shown(_SHAPE, "Attention layers.")] = None
    heads: Annotated[Count | None, Shown(_SHAPE, "Heads per layer.")] = None
    width: Annotated[Count | None, Shown(_SHAPE, "Width of the hidden states.")] = None
    positions: Annotated[str | None, Shown(_SHAPE, "none, sinusoidal, learnt or relative.")] = None
    pooling: Annotated[str | None, Shown(_SHAPE, "mean, cls, cls-zero, attention, query …")] = None
    dropout: Annotated[NotNegative | None, Shown(_SHAPE, "Dropout.")] = None
    entropy: Annotated[
        NotNegative | None, Shown(_LOSS, "Weight of the penalty on the normalised attention entropy.")
    ] = None
    entropy_rows: Annotated[
        Annotated[str, OneOf(("cls", "all"))], Shown(_LOSS, "Rows that the entropy penalty uses: cls or all.")
    ] = "cls"
    entropy_layers: Annotated[
        Annotated[Sequence[Count], NotEmpty()] | None,
        Shown(_LOSS, "Layers that the entropy penalty uses, from 1, for example 1,3.", default="all"),
    ] = None
    rationale_weight: Annotated[NotNegative | None, Shown(_LOSS, "Weight of the rationale penalty.")] = None
    rationale_loss: Annotated[
        Annotated[str, OneOf(("jaccard", "kl"))], Shown(_LOSS, "Rationale penalty: jaccard or kl.")
    ] = "jaccard"
    heuristic_weight: Annotated[
        NotNegative | None, Shown(_LOSS, "Weight of the heuristic penalty (sentence pairs).")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds is not None and self.seed != 0:
            raise UserError("Set `seed` or `seeds`, not both.")

    def settings(self) -> TrainingSettings:
        """The same as the settings of one run: sizes are overrides, weights are penalties."""
        sizes = {name: value for name in SIZES if (value := getattr(self, name)) is not None}
        changes = {"overrides": {**self.overrides, **sizes}, "penalties": (*self.penalties, *self._penalties())}
        return TrainingSettings(**{**base_fields(self), **changes})

    def _penalties(self) -> "list[Penalty]":
        """The penalties that were given a weight."""
        from lorgnette.training.penalties import EntropyPenalty, HeuristicPenalty, RationalePenalty

        out: list[Penalty] = []
        if self.entropy is not None:
            out.append(EntropyPenalty(self.entropy, rows=self.entropy_rows, layers=self.entropy_layers))
        if self.rationale_weight is not None:
            out.append(RationalePenalty(self.rationale_weight, self.rationale_loss))
        if self.heuristic_weight is not None:
            out.append(HeuristicPenalty(self.heuristic_weight))
        return out


def base_fields(settings: TrainingSettings) -> Json:
    """The fields of an extension that belong to `TrainingSettings`."""
    return {each.name: getattr(settings, each.name) for each in dataclasses.fields(TrainingSettings)}
