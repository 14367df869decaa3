"""e-SNLI (Camburu et al. 2018): premise, hypothesis, explanations, and highlighted words for some pairs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lorgnette.errors import UserError
from lorgnette.texts.annotated import majority, share
from lorgnette.texts.example import Example
from lorgnette.texts.tables import csv_rows, tsv_rows
from lorgnette.types import Json, Row

LABELS = ("entailment", "neutral", "contradiction")
FILE_LABELS = {"0": "neutral", "1": "entailment", "2": "contradiction"}  # the numbers of the tab-separated files
TRAIN_SHARE = 0.8
SOURCE = "github.com/OanaMariaCamburu/e-SNLI (folder dataset)"
_COLUMNS = ("pairID", "gold_label", "Sentence1", "Sentence2", "Sentence1_marked_1", "Sentence2_marked_1")
_WORD = re.compile(r"\w+(?:['’./-]\w+)*|[^\w\s]")


def esnli(path: Path, highlights: Path, split: str) -> Iterator[Example]:
    """Pairs of the dev file (train and val, 80/20 by a hash of the premise, so that no premise is in both) or of test.

    `words` are those of the premise, then those of the hypothesis from `extra["pair_start"]` on. The 1,112 entailment
    pairs that come with highlights carry them as rationale (the majority of three annotators); other pairs have none.
    """
    marked = {row["pairID"]: row for _, row in csv_rows(highlights)}
    for _, row in tsv_rows(path):
        key = row["unique_key"]
        premise_key = key[: key.rindex("r")]  # "4705552913.jpg#2r1n": image, caption, pair and its label
        if split == "test" or (share(premise_key) < TRAIN_SHARE) == (split == "train"):
            explanations = tuple(row[f"explanation{k}"] for k in (1, 2, 3))
            pair = (row["premise"], row["hypothesis"])
            yield esnli_example(key, pair, FILE_LABELS[row["label"]], explanations, marked.get(key))


def released(*paths: Path) -> Iterator[Example]:
    """Pairs of the authors' own files: highlights of one annotator in train, of three in dev and test.

    Words are split from the punctuation at their ends. A few rows of train have no hypothesis, and are left out; a pair
    whose highlights are not those of its words has no rationale.
    """
    for path in paths:
        for number, row in csv_rows(path):
            missing = next((name for name in _COLUMNS if name not in row), None)
            if missing is not None:
                raise UserError(f"{path}: no column {missing!r}; expected a file of {SOURCE}, such as esnli_test.csv.")
            if row["gold_label"] not in LABELS:
                raise UserError(f"{path}, line {number}: {row['gold_label']!r} is none of {', '.join(LABELS)}.")
            if row["Sentence1"].strip() and row["Sentence2"].strip():
                yield _released(row)


def _released(row: Row) -> Example:
    premise, hypothesis = (" ".join(_WORD.findall(row[f"Sentence{side}"])) for side in (1, 2))
    known = [k for k in (1, 2, 3) if row.get(f"Sentence1_marked_{k}") and row.get(f"Sentence2_marked_{k}")]
    about = row["pairID"], (premise, hypothesis), row["gold_label"], tuple(row[f"Explanation_{k}"] for k in known)
    try:
        return esnli_example(*about, row if known else None, known)
    except ValueError:
        return esnli_example(*about)


def esnli_example(
    id: str,
    pair: tuple[str, str],
    label: str,
    explanations: Sequence[str],
    marked: Mapping[str, str] | None = None,
    annotators: Sequence[int] = (1, 2, 3),
) -> Example:
    premise, hypothesis = (tuple(sentence.split()) for sentence in pair)
    extra: Json = {"pair_start": len(premise), "explanations": tuple(explanations)}
    rationale = None
    if marked is not None:
        sides = [
            [highlighted(marked[f"Sentence{side}_marked_{k}"], words) for k in annotators]
            for side, words in ((1, premise), (2, hypothesis))
        ]
        gold = [majority(masks) for masks in sides]
        rationale = gold[0] + gold[1]
        extra |= {"premise_rationale": gold[0], "hypothesis_rationale": gold[1]}
        extra["rationales"] = tuple(tuple(map(float, a + b)) for a, b in zip(*sides, strict=True))
    return Example(
        id=id,
        text=" ".join(premise),
        pair=" ".join(hypothesis),
        words=premise + hypothesis,
        label=LABELS.index(label),
        rationale=rationale,
        extra=extra,
    )


def highlighted(sentence: str, words: Sequence[str]) -> tuple[int, ...]:
    """Marks for `words` from the sentence as the annotator saw it, where *these* words are highlighted.

    The annotator saw words between blanks ("*manuals.*"), the corpus has its punctuation apart ("manuals", "."): the
    two are the same characters, so a word takes the mark of the characters at its place. Punctuation split from a
    highlighted word is not marked: nobody chose it.
    """
    marks = "".join(("1" if "*" in chunk else "0") * len(chunk.replace("*", "")) for chunk in sentence.split())
    if len(marks) != sum(map(len, words)):
        raise ValueError(f"the highlights {sentence!r} are not those of the words {' '.join(words)!r}")
    spans, at = [], 0
    for word in words:
        spans.append(int(marks[at] == "1" and any(character.isalnum() for character in word)))
        at += len(word)
    return tuple(spans)


def esnli_hub(number: int, row: Row) -> Example | None:
    """A row as the hub has it (no highlights there); None without a label."""
    if row["label"] not in (0, 1, 2):
        return None
    explanations = [row[f"explanation_{k}"] for k in (1, 2, 3) if row.get(f"explanation_{k}")]
    return esnli_example(str(number), (row["premise"], row["hypothesis"]), LABELS[row["label"]], explanations)
