"""What runs that differ only in their seed share: splits, tokenizer, token ids."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accelerate import PartialState

from lorgnette.corpora import Example
from lorgnette.errors import UserError
from lorgnette.training.build import Builder, builder
from lorgnette.training.data import Bucketed, Items, Mapper, Reader, Streamed
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.splits import Parts, check_labels, parts_of


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

    def bucketed(self, settings: TrainingSettings) -> Any:  # a Bucketed; torch's base class is no type to check
        """The training texts as the Trainer will read them."""
        together = settings.batch_size * PartialState().num_processes
        if self.train is None:
            return Streamed(self.reader, self.parts.train, self.count, together, settings.seed)
        return Bucketed(self.train.items, together, settings.seed)

    def test(self) -> Items | None:
        """The test texts, read now; None without a test split, or if its labels are hidden."""
        if self.parts.test is None:
            return None
        items = Items(self.reader, self.parts.test, longest_first=True)
        counts = items.label_counts()
        if set(counts) == {None}:
            return None
        wrong = [label for label in counts if label is None or not 0 <= label < len(self.parts.labels)]
        if wrong:
            raise UserError(f"the test texts have the label {wrong[0]}, which is not one of the classes.")
        return items


def prepare(settings: TrainingSettings) -> Prepared:
    """Reads, checks and tokenises the training and validation texts; nothing of the test texts is read."""
    parts = parts_of(settings)
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
            notes.append(f"{train.cut} of {count} training texts were cut to {made.max_length} tokens")
    check_labels(counts, parts.labels, f"{parts.train.name}, training texts")
    validation = Items(reader, parts.validation, longest_first=True)
    if validation.cut:
        notes.append(f"{validation.cut} of {len(validation)} validation texts were cut to {made.max_length} tokens")
    check_labels(validation.label_counts(), parts.labels, f"{parts.train.name}, validation texts")
    return Prepared(parts, made, reader, train, validation, count, parts.train.fingerprint(), tuple(notes))


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
