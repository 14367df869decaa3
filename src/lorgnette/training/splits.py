"""Which texts a run trains on, stops by, and is tested on."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lorgnette.errors import UserError
from lorgnette.texts import Corpus, Example, corpus
from lorgnette.texts.labels import agreeing, matched
from lorgnette.training.settings import Splits, TrainingSettings

TRAINED = "the training texts"


@dataclass(frozen=True)
class Parts:
    """The corpora of a run. Of the test texts only the names of their classes are read before training is over."""

    train: Corpus
    validation: Corpus
    test: Corpus | None
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def in_classes(self, classes: tuple[str, ...], renamed: Mapping[str, str], model: str) -> "Parts":
        """The same texts with the classes of a trained model, which are matched by name."""
        train, validation, test = (
            None if part is None else matched(part, classes, renamed, model=model)
            for part in (self.train, self.validation, self.test)
        )
        assert train is not None
        assert validation is not None
        return replace(self, train=train, validation=validation, test=test, labels=classes)

    def agreeing(self) -> "Parts":
        """The same texts with the classes of the training texts in every split, for a model that has none yet."""
        validation, test = (
            None if part is None else agreeing(part, self.labels, what=f"{part.name}: the {which} texts", other=TRAINED)
            for part, which in ((self.validation, "validation"), (self.test, "test"))
        )
        assert validation is not None
        return replace(self, validation=validation, test=test)


def parts_of(settings: TrainingSettings, *, classes: bool = True) -> Parts:
    """Opens the splits; a validation split that the corpus lacks is a seeded share of the training texts.

    Without `classes` the texts need none (translations).
    """
    given = settings.corpus if isinstance(settings.corpus, Splits) else _opened(settings)
    labels = given.train.labels if classes else ()
    if labels is None:
        raise UserError(
            f"the corpus {given.train.name!r} has no classes to learn: expected a labelled corpus, or name the column "
            "with --label-column."
        )
    if classes and len(labels) < 2:
        raise UserError(f"the corpus {given.train.name!r} has one class ({labels[0]}): a classifier needs two.")
    whole = given.train if settings.limit is None else given.train.take(settings.limit)
    notes = []
    if given.validation is None:
        count = _size(whole)
        train, validation = _shared(whole, count, settings)
        notes.append(f"{settings.validation:.0%} of the training texts are used for validation")
    else:
        train, validation = whole, given.validation
    test = given.test
    if test is not None and settings.test_limit is not None:
        test = test.take(settings.test_limit)
    if test is None:
        notes.append("the corpus has no test split; the numbers are those of the validation texts")
    return Parts(train, validation, test, labels, tuple(notes))


def check_labels(counts: Mapping[int | None, int], labels: tuple[str, ...], what: str) -> None:
    """Every text has a label, every label is a class, every class has a text."""
    if None in counts:
        raise UserError(
            f"{what}: {counts[None]} texts have no label. Leave them out, or name the column of the labels."
        )
    known = {label for label in counts if label is not None}
    wrong = sorted(label for label in known if not 0 <= label < len(labels))
    if wrong:
        raise UserError(f"{what}: label {wrong[0]} is not one of the {len(labels)} classes ({', '.join(labels)}).")
    if len(known) == 1:
        raise UserError(f"{what}: all texts are {labels[known.pop()]!r}; a classifier needs at least two classes.")
    missing = [name for number, name in enumerate(labels) if number not in known]
    if missing:
        raise UserError(
            f"{what}: no text is {missing[0]!r}, one of the {len(labels)} classes. Take more texts, or a corpus "
            "without that class."
        )


def _opened(settings: TrainingSettings) -> Splits:
    assert isinstance(settings.corpus, str)
    present = _present(settings.corpus, settings)

    def opened(split: str | None) -> Corpus:
        return corpus(
            settings.corpus,
            split=split,
            data=settings.data,
            text_column=settings.text_column,
            label_column=settings.label_column,
        )

    if present is None:  # one file: no splits
        return Splits(opened(None))
    validation = "validation" if "validation" in present else None
    test = settings.test_split if settings.test_split in present else None
    return Splits(opened("train"), opened(validation) if validation else None, opened(test) if test else None)


def _present(name: str, settings: TrainingSettings) -> set[str] | None:
    """The splits of a corpus, with one name for validation; None if it has none (a file)."""
    from lorgnette.texts.named import NAMED, SAME_SPLIT
    from lorgnette.texts.planted import SIZES

    first = name.split(":")[0]
    if first == "planted" or first in NAMED:
        known = set(SIZES) if first == "planted" else set(NAMED[first].splits)
        if len(known) == 1:  # one set of texts without parts: a share of it validates, as of a file
            return None
        if "train" not in known:
            raise UserError(
                f"the corpus {name!r} has no training split, only {' and '.join(sorted(known))}: give a file of texts "
                "to train on, a share of which validates, or a corpus with a training split."
            )
        if settings.test_split not in known:
            raise UserError(f"{name} has no split {settings.test_split!r}; there are {', '.join(sorted(known))}.")
    elif Path(name).expanduser().is_file():
        return None
    else:
        known = {split for split in ("train", "validation", settings.test_split) if _opens(name, split, settings)}
    return {"validation" if split in SAME_SPLIT else split for split in known}


def _opens(name: str, split: str, settings: TrainingSettings) -> bool:
    """Whether a folder or a data set of the hub has this split; a missing training split is an error."""
    try:
        corpus(name, split=split, data=settings.data, text_column=settings.text_column)
    except UserError:
        if split == "train":
            raise
        return False
    return True


def _size(texts: Corpus) -> int:
    return len(texts) if hasattr(texts, "__len__") else sum(1 for _ in texts)


def _shared(whole: Corpus, count: int, settings: TrainingSettings) -> tuple[Corpus, Corpus]:
    """A seeded choice of indices, so that neither part needs to be in memory."""
    wanted = max(1, round(count * settings.validation))
    if count - wanted < 1:
        raise UserError(f"{whole.name}: {count} texts are too few to train and to validate on.")
    chosen = frozenset(random.Random(settings.split_seed).sample(range(count), wanted))

    def part(held_out: bool) -> Iterator[Example]:
        return (example for number, example in enumerate(whole) if (number in chosen) == held_out)

    how = f"{settings.validation} {settings.split_seed}"
    return (
        whole.derived(lambda: part(False), f"but {how}", split="train"),
        whole.derived(lambda: part(True), f"only {how}", split="validation"),
    )
