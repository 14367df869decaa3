"""One text, with everything its corpus knows of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lorgnette.types import Json

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
    parts: tuple[Span, ...] = ()  # who speaks in a chat, the named parts of a prompt; in order, without overlap

    def __post_init__(self) -> None:
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
                raise ValueError(f"example {self.id!r}: {len(values)} values of {name!r} for {count} words")
