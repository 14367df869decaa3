"""What runs share that differ only in their seed: splits, tokenizer, token ids."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.texts import Example
from lorgnette.training.arguments import processes
from lorgnette.training.build import Builder, builder, classes_of, models_language, translates
from lorgnette.training.data import Bucketed, Collator, Items, Mapper, Reader, Reads, Streamed
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.splits import Parts, check_labels, parts_of
from lorgnette.training.trainer import PenalisedTrainer, Tally, metrics_of
from lorgnette.types import Json, PreTrainedModel


@dataclass(frozen=True)
class Prepared:
    """The texts of a run as token ids, and what makes its model."""

    parts: Parts
    builder: Builder
    reader: Reader
    train: Items | None  # None when the texts are streamed
    validation: Items
    count: int
    fingerprint: str
    notes: tuple[str, ...]

    trainer_class: ClassVar[type[PenalisedTrainer]] = PenalisedTrainer
    tally_class: ClassVar[type[Tally]] = Tally

    def trainer_parts(self) -> Json:
        """The Trainer's arguments for reading and scoring batches."""
        return {
            "processing_class": self.builder.tokenizer,
            "data_collator": Collator(self.builder.tokenizer.pad_token_id),
            "compute_metrics": metrics_of,
        }

    def loss(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The loss of a batch as the collator makes it."""
        return model(**batch).loss

    def described(self, settings: TrainingSettings) -> str:
        """One line about model and texts, printed before the start; test texts are counted when they are read."""
        names = self.parts.labels
        classes = f" of {len(names)} classes ({', '.join(names[:6])}{' …' if len(names) > 6 else ''})" if names else ""
        return (
            f"{settings.model} on {self.parts.train.name}: {self.count:,} texts{classes} to train on, "
            f"{len(self.validation):,} to validate, in batches of {settings.batch_size}."
        )

    def more_metrics(self, model: PreTrainedModel, split: str) -> Json:
        """Measures of the trained model on "validation" or "test", besides the Trainer's numbers."""
        return {}

    def write(self, folder: Path, record: Json) -> None:
        """Write what belongs into the folder of a run beside its model and record."""
        self.builder.tokenizer.save_pretrained(folder)

    def bucketed(self, settings: TrainingSettings) -> Any:  # a Bucketed; torch's base class is no type to check
        """The training texts as the Trainer will read them."""
        together = settings.batch_size * processes().num_processes
        if self.train is None:
            return Streamed(self.reader, self.parts.train, self.count, together, settings.seed)
        return Bucketed(self.train.items, together, settings.seed)

    @cached_property
    def test(self) -> Items | None:
        """The test texts, read when first asked for; None without a test split, or if its labels are hidden."""
        if self.parts.test is None:
            return None
        items = Items(self.reader, self.parts.test, longest_first=True)
        if not self.parts.labels:  # nothing to classify
            return items
        counts = items.label_counts()
        if set(counts) == {None}:
            return None
        wrong = [label for label in counts if label is None or not 0 <= label < len(self.parts.labels)]
        if wrong:
            raise UserError(f"the test texts have the label {wrong[0]}, which is not one of the classes.")
        return items


def prepare(settings: TrainingSettings, *, trained: bool = False) -> Prepared:
    """Reads, checks and tokenises the training and validation texts; nothing of the test texts is read.

    Labels are matched with the classes that a model has already by name. `trained`: also with those that have none, and
    a language model remains one, so that any text will do.
    """
    if translates(settings):
        if settings.labels:
            raise UserError("translations have no labels: omit --labels.")
        from lorgnette.training.translation.task import prepare_pairs

        return prepare_pairs(settings, parts_of(settings, classes=False))
    if trained and models_language(settings):
        from lorgnette.training.language.task import prepare_texts

        return prepare_texts(settings, parts_of(settings, classes=False))
    if settings.select == "bleu":
        raise UserError(
            "--select bleu needs a translation model; for a classifier use loss, cross_entropy or accuracy."
        )
    parts = parts_of(settings)
    classes = classes_of(settings, parts.labels, trained=trained)
    parts = parts.agreeing() if classes is None else parts.in_classes(classes, settings.labels, settings.model)
    made = builder(settings, parts.labels, lambda: parts.train)
    reader = Reader(made.tokenizer, made.config, made.max_length, _maps(settings))
    notes = list(parts.notes)
    if settings.stream:
        train, counts = None, Counter(example.label for example in parts.train)
        count = counts.total()
    else:
        train = Items(reader, parts.train)
        counts, count = train.label_counts(), len(train)
        if train.cut:
            notes.append(f"{train.cut} of {count} training texts truncated to {made.max_length} tokens")
    check_labels(counts, parts.labels, f"{parts.train.name}, training texts")
    validation = Items(reader, parts.validation, longest_first=True)
    if validation.cut:
        notes.append(f"{validation.cut} of {len(validation)} validation texts truncated to {made.max_length} tokens")
    check_labels(validation.label_counts(), parts.labels, f"{parts.train.name}, validation texts")
    return Prepared(parts, made, reader, train, validation, count, parts.train.fingerprint(), tuple(notes))


def all_in_memory(reader: Reads, parts: Parts, what: str, unit: str) -> tuple[Items, Items, tuple[str, ...]]:
    """The items of training and validation where there are no classes, and notes on the texts that were cut."""
    train, validation = Items(reader, parts.train), Items(reader, parts.validation, longest_first=True)
    notes = list(parts.notes)
    for items, which in ((train, "training"), (validation, "validation")):
        if not len(items):
            raise UserError(f"{parts.train.name} has no {which} {what}.")
        if items.cut:
            notes.append(f"{items.cut} of {len(items)} {which} {what} truncated to {reader.max_length} {unit}")
    return train, validation, tuple(notes)


def _maps(settings: TrainingSettings) -> dict[str, Mapper]:
    needed = {name for penalty in settings.penalties for name in penalty.needs}
    maps: dict[str, Mapper] = {}
    if "gold" in needed:
        maps["gold"] = rationale
    if "heuristic" in needed:
        from lorgnette.training.heuristic import heuristic_mapper

        maps["heuristic"] = heuristic_mapper(settings)
    return maps


def rationale(example: Example, words: Sequence[str]) -> Sequence[float]:
    """The human rationale of a text, or zeros if it has none."""
    return example.rationale if example.rationale is not None else [0.0] * len(words)
