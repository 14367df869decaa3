"""One text, and one example, as ids: the tokenizer's work before it is padded into a batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lorgnette.texts.example import Example

T = TypeVar("T")


class Sequences(NamedTuple):
    """The tokenizer's input: one text or two, with their words if the corpus has words."""

    text: str
    pair: str | None = None
    words: tuple[str, ...] | None = None
    pair_words: tuple[str, ...] | None = None

    @staticmethod
    def of(example: Example) -> "Sequences":
        """The words of a corpus that comes in words, else the raw text; a second text that is empty is none."""
        words, pair_words = example.words, None
        start = None if example.pair is None else example.extra.get("pair_start")
        if words is not None and start is not None:  # the gold words go on through the pair
            words, pair_words = words[:start], words[start:]
        text = example.text if words is None else " ".join(words)
        pair = example.pair if pair_words is None else " ".join(pair_words)
        return Sequences(text, pair, words, pair_words) if pair else Sequences(text, words=words)


@dataclass(frozen=True)
class WordSpans:
    """Words as positions in a text, turned into strings only on demand."""

    text: str
    start: Int[np.ndarray, " word"]
    stop: Int[np.ndarray, " word"]

    @staticmethod
    def of(words: Sequence[str], between: str = "") -> "WordSpans":
        """The spans of words that make up a text, with this separator between them."""
        wide = np.array([len(word) + len(between) for word in words], dtype=np.int64)
        stop = np.cumsum(wide) - len(between)
        return WordSpans(between.join(words), stop - wide + len(between), stop)

    def __len__(self) -> int:
        return len(self.start)

    def followed_by(self, other: "WordSpans") -> "WordSpans":
        """These words, then those of another text."""
        start, stop = (
            np.concatenate([mine, theirs + len(self.text)])
            for mine, theirs in ((self.start, other.start), (self.stop, other.stop))
        )
        return WordSpans(self.text + other.text, start, stop)

    def names(self) -> tuple[str, ...]:
        """The words as strings."""
        return tuple(map(self.text.__getitem__, map(slice, self.start.tolist(), self.stop.tolist())))


WordMap = tuple[Int[np.ndarray, " _"], WordSpans]
"""The word of each piece, −1 for none, and the words."""


Row = Shaped[np.ndarray, " _"]


class SideWords:
    """The words of one text and the word of each of its pieces: known, or found when somebody first asks.

    Many lenses never ask for words, and finding them takes longer than cutting a text into tokens. `find` gives the
    word maps of several texts at once.
    """

    def __init__(self, sequences: Sequences, find: Callable[[Sequence[Sequences]], Sequence[WordMap]]) -> None:
        self.sequences, self._find = sequences, find
        self.found: WordMap | None = None

    @staticmethod
    def of(word: Sequence[int], words: Sequence[str]) -> "SideWords":
        """The words of a side, when they are known."""
        made = SideWords(Sequences(""), lambda texts: [])
        made.found = np.array(word, dtype=np.int64), WordSpans.of(words)
        return made

    @property
    def map(self) -> WordMap:
        """The word of each piece, and the words."""
        if self.found is None:
            (self.found,) = self._find([self.sequences])
        return self.found

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The words as strings."""
        return self.map[1].names()


class Side:
    """One text of one example as ids, unpadded; what is left of it where it was cut."""

    def __init__(
        self,
        ids: Int[np.ndarray, " piece"],
        special: Bool[np.ndarray, " piece"],
        text: SideWords,
        types: list[int] | None = None,
        parts: list[str] | None = None,
        places: list[int] | None = None,
    ) -> None:
        self.ids = ids
        self.special = special
        """What the tokenizer added: [CLS], [SEP], </s> …"""
        self.text = text
        """The words of the whole text."""
        self.types = types
        self.parts = parts
        """The name of the part that each piece belongs to, where a text has parts."""
        self.places = places
        """Which pieces of the whole text these are; None: all of them."""

    @staticmethod
    def of(ids: Sequence[int], special: Sequence[bool], word: Sequence[int], words: Sequence[str]) -> "Side":
        """A whole text whose words are known."""
        return Side(np.array(ids, dtype=np.int64), np.array(special, dtype=bool), SideWords.of(word, words))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def cut(self) -> bool:
        """Whether the text was truncated."""
        return self.places is not None

    @property
    def word(self) -> Int[np.ndarray, " piece"]:
        """Index of the word that a piece belongs to; −1 for special tokens."""
        whole = self.text.map[0]
        return whole if self.places is None else whole[self.places]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the text, also those that were cut."""
        return self.text.names

    @property
    def word_spans(self) -> WordSpans:
        """The words as places in their text."""
        return self.text.map[1]

    def at(self, places: list[int]) -> "Side":
        """The pieces at these places: what is left of a text that was cut."""
        types, parts = (None if row is None else _picked(row, places) for row in (self.types, self.parts))
        whole = places if self.places is None else _picked(self.places, places)
        return Side(self.ids[places], self.special[places], self.text, types, parts, whole)


def _picked(row: list[T], places: list[int]) -> list[T]:
    return [row[place] for place in places]


@dataclass(frozen=True)
class Encoded:
    """One example as ids: its source, and its target if the model has a decoder that reads another text."""

    example: Example
    source: Side
    target: Side | None = None
    seen: Mapping[str, Tensor] = field(default_factory=dict)
    """What the model sees beside the text, for this example alone: pixels …"""
    number: int = 0
    """Its place in the corpus, counted from 1; 0 if it comes from none."""

    @property
    def tokens(self) -> int:
        return len(self.source) + (len(self.target) if self.target else 0)

    @property
    def cut(self) -> bool:
        return self.source.cut or bool(self.target and self.target.cut)


def positions_within(special: Sequence[bool], limit: int) -> list[int]:
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
