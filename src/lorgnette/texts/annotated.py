"""Classification with human rationales: HateXplain, YelpHat, ERASER's movie reviews."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from lorgnette.texts.example import Example
from lorgnette.texts.tables import jsonl_rows
from lorgnette.types import Json, Row

Mask = Sequence[int]

HUMAN = ("hatexplain", "yelphat", "eraser_movies", "esnli")
"""Corpora whose rationales people marked; those of `planted` are made with the text, those of a file are not known."""

HATE_LABELS = ("normal", "hatespeech", "offensive")
SENTIMENT = ("negative", "positive")
YELP_TESTS = {"test50": "ham_part1(50words)", "test100": "ham_part6(100words)", "test200": "ham_part8(200words)"}
YELP_TRAIN_SHARE = 0.7


def share(key: str) -> float:
    """A number in [0, 1) computed from the key alone, for deterministic splits."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64


def majority(masks: Sequence[Mask]) -> tuple[float, ...]:
    """1 for the words that more than half of the masks mark (two of three, both of two, three of four)."""
    return tuple(float(2 * sum(marks) > len(marks)) for marks in zip(*masks, strict=True))


def mean_or_first(masks: Sequence[Mask]) -> tuple[float, ...]:
    """1 where the mean over the masks is at least ½; if that marks nothing, the first mask that marks anything.

    The gold rationale of Fosse et al. 2023 on HateXplain.
    """
    gold = tuple(float(2 * sum(marks) >= len(marks)) for marks in zip(*masks, strict=True))
    if any(gold):
        return gold
    return next((tuple(float(mark) for mark in mask) for mask in masks if any(mask)), gold)


def hatexplain(path: Path) -> Iterator[Example]:
    """HateXplain (Mathew et al. 2021): posts with a majority label.

    Gold rationale: `mean_or_first` of the annotators' masks where they exist (val, test), else the union over the
    annotators (train; `extra["rationale_from"]` says which). Posts labelled normal have no marked word.
    """
    for _, row in jsonl_rows(path):
        yield hate_example(row["id"], row["tokens"], row["label"], row.get("rationales") or [], row)


def hate_example(id: str, tokens: Sequence[str], label: str, masks: Sequence[Mask], row: Row | None = None) -> Example:
    row = row or {}
    union = row.get("rationale_union") or [max(marks) for marks in zip(*masks, strict=True)] or [0] * len(tokens)
    extra: Json = {key: row[key] for key in ("annotator_labels", "targets") if key in row}
    return Example(
        id=id,
        text=" ".join(tokens),
        words=tuple(tokens),
        label=HATE_LABELS.index(label),
        rationale=mean_or_first(masks) if masks else tuple(map(float, union)),
        extra={
            **extra,
            "rationale_from": "annotators" if masks else "union",
            "rationale_union": tuple(map(float, union)),
            "rationales": tuple(tuple(map(float, mask)) for mask in masks),
        },
    )


def hatexplain_hub(number: int, row: Row) -> Example | None:
    """A row as the hub has it: numbers for labels, one mask per annotator; None without a majority label."""
    names = ("hatespeech", "normal", "offensive")
    votes = Counter(names[vote] for vote in row["annotators"]["label"])
    label, count = votes.most_common(1)[0]
    if count < 2:
        return None
    tokens = row["post_tokens"]
    # A few masks of the original file are longer or shorter than their post; one that does not fit marks nothing.
    masks = [mask for mask in row["rationales"] if len(mask) == len(tokens)] if label != "normal" else []
    return hate_example(row["id"], tokens, label, masks)


def yelphat(path: Path, split: str) -> Iterator[Example]:
    """YelpHat (Sen et al. 2020): part 1 = test50, part 6 = test100, part 8 = test200, "test" = the three together.

    The other parts (the superseded part 6 too) are train or val, 70/30 by a hash of the text. Gold: `majority` of the
    annotators' maps; parts 3–5 come only with the sum of the maps, and there two marks make a gold word.
    """
    tests = {part: name for name, part in YELP_TESTS.items()}
    for number, row in jsonl_rows(path):
        place = tests.get(row["part"]) or ("train" if share(row["text"]) < YELP_TRAIN_SHARE else "val")
        if place == split or (split == "test" and row["part"] in tests):
            yield _yelp_example(number, row)


def _yelp_example(number: int, row: Row) -> Example:
    maps = [ham["map"] for ham in row["hams"] or []]
    gold = majority(maps) if maps else tuple(float(marks >= 2) for marks in row["ham_sum"])
    return Example(
        id=f"{row['part']}/{number}",
        text=" ".join(row["words"]),
        words=tuple(row["words"]),
        label=row["label"],
        rationale=gold,
        extra={
            "part": row["part"],
            "raw": row["text"],
            "maps": tuple(tuple(map(float, one)) for one in maps),
            "map_sum": tuple(row["ham_sum"]),
            "annotator_labels": tuple(ham["label"] for ham in row["hams"] or []),
        },
    )


def movies(path: Path) -> Iterator[Example]:
    """ERASER's movie reviews (DeYoung et al. 2020): the words of the evidence spans are the rationale.

    `extra["sentences"]` has the number of words of each sentence, `extra["spans"]` the [start, end) spans.
    """
    for _, row in jsonl_rows(path):
        words = tuple(row["text"].split())
        marks = [0.0] * len(words)
        for start, end in row["rationale"]:
            marks[start:end] = [1.0] * (end - start)
        yield Example(
            id=row["id"],
            text=" ".join(words),
            words=words,
            label=("NEG", "POS").index(row["label"]),
            rationale=tuple(marks),
            extra={
                "sentences": tuple(len(line.split()) for line in row["text"].splitlines()),
                "spans": tuple(map(tuple, row["rationale"])),
            },
        )
