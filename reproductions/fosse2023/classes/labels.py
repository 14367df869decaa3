"""Real label sets of many sizes: genres, parts of speech, parts of speech with features, masked lemmas."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from lorgnette.texts import Example, corpus

PAD, UNK, CLS, MASK, EDGE = range(5)
NEIGHBOURS = 8  # on each side
WINDOW = 48  # words of a text whose genre is asked
LEMMAS = 500
SPLITS = ("train", "dev", "test")
_Row = tuple[list[str], str]
_SPECIAL = {"<mask>": MASK, "<edge>": EDGE}


@dataclass(frozen=True)
class Texts:
    ids: Int[Tensor, "text token"]
    labels: Int[Tensor, " text"]


@dataclass(frozen=True)
class LabelSet:
    """Three splits, the classes (of the training texts), the vocabulary, and how many texts had another class."""

    classes: tuple[str, ...]
    words: dict[str, int]
    splits: dict[str, Texts]
    left_out: dict[str, int]


@lru_cache(maxsize=1)
def label_set(name: str, data: str | None, limit: int | None) -> LabelSet:
    """The words are lower-cased, those seen once in training unknown. With `limit`, so many training texts."""
    rows = {split: list(_rows(name, split, data)) for split in SPLITS}
    if limit is not None:
        rows = {split: some[:: max(1, len(some) // limit)] for split, some in rows.items()}
    counts = Counter(label for _, label in rows["train"])
    common = counts.most_common(LEMMAS) if name == "lemmas" else counts.most_common()
    classes = tuple(label for label, _ in common)
    seen = Counter(word for words, _ in rows["train"] for word in words if word not in _SPECIAL)
    words = {word: EDGE + 1 + place for place, word in enumerate(w for w, n in seen.items() if n > 1)}
    number = {label: place for place, label in enumerate(classes)}
    kept = {split: [row for row in some if row[1] in number] for split, some in rows.items()}
    return LabelSet(
        classes=classes,
        words=words,
        splits={split: _texts(some, words, number) for split, some in kept.items()},
        left_out={split: len(rows[split]) - len(kept[split]) for split in SPLITS},
    )


def _rows(name: str, split: str, data: str | None) -> Iterator[_Row]:
    if name == "genres":
        yield from _windows(corpus("ud_en_gum", split=split, data=data))
        return
    for example in corpus("ud_en_ewt", split=split, data=data):
        yield from _marked(example, name)


def _windows(sentences: Any) -> Iterator[_Row]:
    """Consecutive sentences of one document, until there are 48 words; its genre is in the document's name."""
    held: list[str] = []
    document: str | None = None
    for example in sentences:
        if example.extra["document"] != document:
            if held and document is not None:
                yield held[:WINDOW], _genre(document)
            held, document = [], str(example.extra["document"])
        held += [word.lower() for word in example.words]
        if len(held) >= WINDOW and document is not None:
            yield held[:WINDOW], _genre(document)
            held = []
    if held and document is not None:
        yield held[:WINDOW], _genre(document)


def _genre(document: str) -> str:
    return document.split("_")[1]


def _marked(example: Example, name: str) -> Iterator[_Row]:
    """For each word: itself, or <mask>, then its neighbours, nearest first, left before right; <edge> beyond the end.

    So a position always means the same distance from the word that is asked about.
    """
    assert example.words is not None
    words = [word.lower() for word in example.words]
    labels = _labels(example, name)
    around = ["<edge>"] * NEIGHBOURS
    padded = [*around, *words, *around]
    for place, label in enumerate(labels):
        at = place + NEIGHBOURS
        near = [padded[at + side * step] for step in range(1, NEIGHBOURS + 1) for side in (-1, 1)]
        yield ["<mask>" if name == "lemmas" else words[place], *near], label


def _labels(example: Example, name: str) -> Sequence[str]:
    if name == "features":
        return [f"{tag} {more}" for tag, more in zip(example.tags["upos"], example.tags["feats"], strict=True)]
    return example.tags["lemma" if name == "lemmas" else name]


def _texts(rows: list[_Row], words: dict[str, int], number: dict[str, int]) -> Texts:
    longest = max(len(some) for some, _ in rows)
    ids = torch.full((len(rows), 1 + longest), PAD, dtype=torch.int32)
    ids[:, 0] = CLS
    for place, (some, _) in enumerate(rows):
        found = [_SPECIAL.get(word) or words.get(word, UNK) for word in some]
        ids[place, 1 : 1 + len(found)] = torch.tensor(found, dtype=torch.int32)
    return Texts(ids, torch.tensor([number[label] for _, label in rows]))
