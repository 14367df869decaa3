"""One text, and one example, as ids: the tokenizer's work before it is padded into a batch."""

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from lorgnette.texts.example import Example

T = TypeVar("T")
WordMap = tuple[list[int], tuple[str, ...]]
"""The word of each piece, −1 for none, and the words."""


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
        return len(self.ids)

    @staticmethod
    def later(ids: list[int], special: list[bool], types: list[int] | None, words: "partial[WordMap]") -> "Side":
        """A side whose words are looked up when somebody first asks for them: many lenses never do."""
        side = object.__new__(Side)
        vars(side).update(ids=ids, special=special, types=types, cut=False, parts=None, _words=words)
        return side

    def __getattr__(self, name: str) -> Any:
        """Asked only for what is not there yet."""
        if name not in ("word", "words") or "_words" not in vars(self):
            raise AttributeError(name)
        word, words = vars(self)["_words"]()
        vars(self).update(word=word, words=words)
        return vars(self)[name]

    def at(self, places: list[int]) -> "Side":
        """Some of the pieces: what is left of a text that was cut."""
        types, parts = (None if row is None else _picked(row, places) for row in (self.types, self.parts))
        ids, special = _picked(self.ids, places), _picked(self.special, places)
        side = Side.later(ids, special, types, partial(_picked_words, self, places))
        vars(side).update(cut=True, parts=parts)
        return side


def _picked(row: list[T], places: list[int]) -> list[T]:
    return [row[place] for place in places]


def _picked_words(side: Side, places: list[int]) -> WordMap:
    return _picked(side.word, places), side.words


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
