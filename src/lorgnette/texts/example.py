"""One text, with everything its corpus knows of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import NamedTuple

from lorgnette.errors import UserError, shown, whole_number
from lorgnette.texts.pictures import Picture
from lorgnette.types import Json

_PER_WORD: dict[str, tuple[type, str]] = {
    "words": (str, "strings"),
    "rationale": (Real, "numbers"),
    "heads": (Integral, "whole numbers"),
    "relations": (str, "strings"),
}
TEMPLATE = "template"
"""The part of a chat that its template adds: who speaks, where a turn ends, a system message of its own."""


class Span(NamedTuple):
    """A named part of a text, by its characters."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Example:
    """One text of a corpus with its annotations; those that the corpus lacks are None (or an empty mapping).

        >>> lo.Example("1", "a dog ran", words=("a", "dog", "ran"), rationale=(0.0, 0.0, 1.0), label=1).label
        1

    Annotations per word have one entry for each of `words`. With a `pair`, the words of the text come first, then those
    of the pair, from `extra["pair_start"]` on.
    """

    id: str
    text: str  # raw text; " ".join(words) when the corpus comes tokenised
    pair: str | None = None  # second sentence (e-SNLI hypothesis)
    words: tuple[str, ...] | None = None  # gold tokenisation, if the corpus has one
    label: int | None = None  # index into corpus.labels
    rationale: tuple[float, ...] | None = None  # per word, in [0, 1]
    heads: tuple[int, ...] | None = None  # gold tree: 1-based head per word, 0 = root
    relations: tuple[str, ...] | None = None
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # "upos", "chunk", …: one per word
    target: str | None = None  # reference translation
    extra: Json = field(default_factory=dict)
    image: Picture | None = None  # what the text is about: a path, or a picture of Pillow
    parts: tuple[Span, ...] = ()  # who speaks in a chat, the named parts of a prompt; in order, without overlap

    def __post_init__(self) -> None:
        self._check_fields()
        per_word = {
            "rationale": self.rationale,
            "heads": self.heads,
            "relations": self.relations,
            **self.tags,
        }
        for name, values in per_word.items():
            if values is None:
                continue
            # A reader that lets these drift apart would shift every later number by a word, silently.
            if self.words is None or len(values) != len(self.words):
                count = "no" if self.words is None else len(self.words)
                raise UserError(
                    f"The text {self.id!r} has {len(values)} values of {name!r} for {count} words: give one for each."
                )

        self._check_parts()

    def _check_parts(self) -> None:
        """Parts lie in the text, in order, and do not overlap."""
        at = 0
        for name, start, end in self.parts:
            if not 0 <= start < end <= len(self.text):
                raise UserError(
                    f"The part {name!r} of {self.id!r} is characters {start} to {end}, but the text has "
                    f"{len(self.text)}. A part has a start (from 0) before its end, both in the text."
                )
            if start < at:
                raise UserError(
                    f"The part {name!r} of {self.id!r} begins at character {start}, inside the part before it (which "
                    f"ends at {at}). Give the parts in order, without overlap."
                )
            at = end

    def _check_fields(self) -> None:
        """Types, once and here: a label of NumPy becomes an int, a list of words a tuple."""
        if isinstance(self.id, int):
            object.__setattr__(self, "id", str(self.id))
        if not isinstance(self.id, str):
            raise UserError(f"The id of a text must be a string or a number. Got {shown(self.id)} instead.")
        if self.image is not None:
            object.__setattr__(self, "image", Picture.of(self.image, self.id))
        for name in ("text", "pair", "target"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "text"):
                raise UserError(f"The {name} of {self.id!r} must be a string. Got {shown(value)} instead.")
        if self.label is not None and (type(self.label) is not int or self.label < 0):
            label = int(self.label) if isinstance(self.label, bool) else self.label
            number = whole_number(label, f"The label of {self.id!r} (None: no label)", at_least=0)
            object.__setattr__(self, "label", number)
        for name in ("words", "rationale", "heads", "relations"):
            value = getattr(self, name)
            if value is None or isinstance(value, tuple):
                continue
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise UserError(f"The {name} of {self.id!r} must be a list, one for each word. Got {shown(value)}.")
            object.__setattr__(self, name, tuple(value))
        for name, (kind, kinds) in _PER_WORD.items():
            values = getattr(self, name)
            if values is not None and not all(isinstance(value, kind) for value in values):
                raise UserError(f"The {name} of {self.id!r} must be {kinds}. Got {shown(values)} instead.")
        for name in ("tags", "extra"):
            if not isinstance(getattr(self, name), Mapping):
                raise UserError(
                    f"The {name} of {self.id!r} must be a mapping. Got {shown(getattr(self, name))} instead."
                )
        for name, tags in self.tags.items():
            # A string has letters, as many as there are words by chance.
            if isinstance(tags, str) or not isinstance(tags, Sequence) or not all(isinstance(tag, str) for tag in tags):
                raise UserError(
                    f"The tags {name!r} of {self.id!r} must be a list of strings, one for each word. Got {shown(tags)}."
                )
