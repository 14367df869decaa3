"""One text, and one example, as ids: the tokenizer's work before it is padded into a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int, Shaped

from lorgnette.texts.example import Example

T = TypeVar("T")


@dataclass(frozen=True)
class WordSpans:
    """Words as places in a text: strings are made of them only where somebody reads them."""

    text: str
    start: Int[np.ndarray, " word"]
    stop: Int[np.ndarray, " word"]

    @staticmethod
    def of(words: Sequence[str], between: str = "") -> "WordSpans":
        """Of words that make up a text, with this between them."""
        wide = np.array([len(word) + len(between) for word in words], dtype=np.int64)
        stop = np.cumsum(wide) - len(between)
        return WordSpans(between.join(words), stop - wide + len(between), stop)

    def __len__(self) -> int:
        return len(self.start)

    def names(self) -> tuple[str, ...]:
        """The words as strings."""
        return tuple(map(self.text.__getitem__, map(slice, self.start.tolist(), self.stop.tolist())))


WordMap = tuple[Int[np.ndarray, " _"], WordSpans]
"""The word of each piece, −1 for none, and the words."""


Row = Shaped[np.ndarray, " _"]


@dataclass(frozen=True)
class Side:
    """One text of one example as ids, unpadded."""

    ids: list[int]
    special: list[bool]
    word: list[int]
    words: tuple[str, ...]
    types: list[int] | None = None
    cut: bool = False
    parts: list[str] | None = None
    """the name of the part that each piece belongs to, where a text has parts"""

    def __len__(self) -> int:
        return len(vars(self).get("_rows", vars(self))["ids"])

    @staticmethod
    def later(rows: "Mapping[str, Row]", types: list[int] | None, words: "partial[WordMap]") -> "Side":
        """A side with `ids` and `special` as arrays, which become lists when somebody reads them.

        Its words are looked up when somebody first asks for them: many lenses never do.
        """
        side = object.__new__(Side)
        vars(side).update(types=types, cut=False, parts=None, _rows=dict(rows), _words=words)
        return side

    def __getattr__(self, name: str) -> Any:
        """Asked only for what is not there yet."""
        known = vars(self)
        if name == "word_spans" and "words" in known:
            known[name] = WordSpans.of(self.words)
        elif "_rows" not in known or name not in ("ids", "special", "word", "words", "word_spans"):
            raise AttributeError(name)
        elif name == "word_spans":
            self.know_words(*known["_words"]())
        else:
            known[name] = self.word_spans.names() if name == "words" else self.row(name).tolist()
        return known[name]

    def know_words(self, word: Int[np.ndarray, " piece"], spans: WordSpans) -> None:
        """Words of a side that was made without them."""
        vars(self)["_rows"]["word"], vars(self)["word_spans"] = word, spans

    def row(self, name: str) -> "Row":
        """`ids`, `special` or `word` as an array."""
        if "_rows" not in vars(self):
            return np.array(getattr(self, name), dtype=bool if name == "special" else np.int64)
        _ = self.word_spans if name == "word" else None  # found together
        return vars(self)["_rows"][name]

    def at(self, places: list[int]) -> "Side":
        """Some of the pieces: what is left of a text that was cut."""
        types, parts = (None if row is None else _picked(row, places) for row in (self.types, self.parts))
        rows = {name: self.row(name)[places] for name in ("ids", "special")}
        side = Side.later(rows, types, partial(_picked_words, self, places))
        vars(side).update(cut=True, parts=parts)
        return side


def _picked(row: list[T], places: list[int]) -> list[T]:
    return [row[place] for place in places]


def _picked_words(side: Side, places: list[int]) -> WordMap:
    return side.row("word")[places], side.word_spans


def uncut(side: Side) -> Side:
    """The whole side that a cut one was made from."""
    words = vars(side).get("_words")
    return words.args[0] if words is not None and words.func is _picked_words else side


@dataclass(frozen=True)
class Encoded:
    """One example as ids: its source, and its target if the model has a decoder that reads another text."""

    example: Example
    source: Side
    target: Side | None = None

    @property
    def tokens(self) -> int:
        return len(self.source) + (len(self.target) if self.target else 0)

    @property
    def cut(self) -> bool:
        return self.source.cut or bool(self.target and self.target.cut)


def positions_within(special: list[bool], limit: int) -> list[int]:
    """Positions that stay when a text is cut: all specials, and the longest part between two of them is cut first.

    So a text still closes with [SEP] or </s>, and of a pair the longer text gives way, not the second.
    """
    parts: list[list[int]] = [[]]
    for position, flag in enumerate(special):
        if flag:
            parts.append([])
        else:
            parts[-1].append(position)
    for _ in range(len(special) - limit):
        max(parts, key=len).pop()
    return sorted([position for part in parts for position in part] + [p for p, flag in enumerate(special) if flag])
