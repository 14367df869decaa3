"""Rows with named columns, turned into examples: what tables and `datasets` have in common."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from lorgnette.errors import UserError, near, outside, shown
from lorgnette.texts.example import Example
from lorgnette.types import Row

MOST_LABELS = 1000  # more classes than this means that the column holds no classes


@dataclass(frozen=True)
class Columns:
    """The column of each field; None where there is none."""

    text: str = "text"
    label: str | None = None
    pair: str | None = None
    id: str | None = None
    words: str | None = None
    rationale: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        for name, column in vars(self).items():
            if not isinstance(column, str) and (column is not None or name == "text"):
                raise UserError(f"{name}_column must be the name of a column. Got {shown(column)} instead.")

    def wanted(self) -> list[str]:
        named = [self.label, self.pair, self.id, self.words, self.rationale, self.target]
        # With the words at hand the text may be left out of the file: it is the words joined.
        return [name for name in ([] if self.words else [self.text]) + named if name is not None]

    def check(self, present: Iterable[str], where: str) -> None:
        present = list(present)
        for name in self.wanted():
            if name not in present:
                known = ", ".join(map(repr, present)) or "none"
                raise UserError(f"{where}: no column {name!r}; the columns are {known}.{near(name, present)}")

    def example(self, row: Row, where: str, number: int | str, classes: Mapping[str, int] | None) -> Example:
        """The example of one row; `where` names it in errors, its number or key is its id unless a column gives one."""
        self.check(row, where)
        words = None if self.words is None else _strings(row[self.words], where, self.words)
        if words is not None and self.text not in row:
            text = " ".join(words)
        else:
            text = _string(row[self.text], where, self.text)
        label = None if self.label is None else _label(row[self.label], where, self.label)
        rationale = None
        if self.rationale is not None:
            rationale = _shares(row[self.rationale], where, self.rationale, words)
        used = {*self.wanted(), self.text}
        return Example(
            id=str(number) if self.id is None else str(row[self.id]),
            text=text,
            pair=None if self.pair is None else _string(row[self.pair], where, self.pair),
            words=words,
            label=None if label is None or classes is None else classes[label],
            rationale=rationale,
            target=None if self.target is None else _string(row[self.target], where, self.target),
            extra={name: value for name, value in row.items() if name not in used},
        )

    def labels(self, rows: Iterator[tuple[str, Row]]) -> tuple[str, ...]:
        """The classes of the label column."""
        if self.label is None:
            return ()
        seen: set[str] = set()
        for where, row in rows:
            self.check(row, where)
            label = _label(row[self.label], where, self.label)
            if label is not None:
                seen.add(label)
            if len(seen) > MOST_LABELS:
                raise UserError(
                    f"{where}: column {self.label!r} has more than {MOST_LABELS} different values; "
                    f"expected one class name or number per row."
                )
        return class_order(seen)


def class_order(classes: Set[str]) -> tuple[str, ...]:
    """The order in which classes are counted: numbers in their order, anything else sorted as text."""
    if all(_is_integer(label) for label in classes):
        return tuple(sorted(classes, key=int))
    return tuple(sorted(classes))


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 20  # a longer one is a name


def _string(value: object, where: str, column: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{where}: column {column!r} is not text but {_shown(value)}; expected a string.")
    return value


def _strings(value: object, where: str, column: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise UserError(f"{where}: column {column!r} is {_shown(value)}; expected a list of words.")
    return tuple(value)


def _label(value: object, where: str, column: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool | int | str):
        with outside(f"{where}: column {column!r}", "Expected a class name or number."):
            return str(int(value)) if isinstance(value, bool) else str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    raise UserError(f"{where}: column {column!r} is {_shown(value)}; expected a class name or number.")


def _shares(value: Any, where: str, column: str, words: tuple[str, ...] | None) -> tuple[float, ...] | None:
    """One number in [0, 1] per word."""
    if value is None:
        return None
    if words is None:
        raise UserError(f"{where}: column {column!r} marks words, but no column gives the words: name it too.")
    fits = isinstance(value, list | tuple) and all(isinstance(mark, int | float) and 0 <= mark <= 1 for mark in value)
    if not fits:
        raise UserError(f"{where}: column {column!r} is {_shown(value)}; expected a number from 0 to 1 per word.")
    if len(value) != len(words):
        raise UserError(f"{where}: column {column!r} marks {len(value)} words, but the row has {len(words)}.")
    return tuple(float(mark) for mark in value)


def _shown(value: object) -> str:
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
