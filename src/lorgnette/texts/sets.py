"""Readers of the named data sets that need a few lines each."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from lorgnette.errors import UserError
from lorgnette.texts.example import Example
from lorgnette.texts.files import lines
from lorgnette.texts.tables import jsonl_rows, tsv_rows
from lorgnette.types import Row


def alternating(read: Callable[[], Iterable[Example]], classes: int) -> Iterator[Example]:
    """The examples of a file sorted by class, the classes taking turns, so that the first n are balanced.

    One reader per class, rather than one class held in memory.
    """
    streams = [_of_class(read, label) for label in range(classes)]
    for turn in zip_longest(*streams):
        yield from (example for example in turn if example is not None)


def _of_class(read: Callable[[], Iterable[Example]], label: int) -> Iterator[Example]:
    return (example for example in read() if example.label == label)


def imdb(path: Path) -> Iterator[Example]:
    """Large Movie Review Dataset (Maas et al. 2011): raw text, `<br />` and all."""
    for _, row in jsonl_rows(path):
        yield Example(id=row["id"], text=row["text"], label=row["label"], extra={"rating": row["rating"]})


def sst2(path: Path) -> Iterator[Example]:
    """Stanford Sentiment Treebank, whole sentences with two classes (Socher et al. 2013); tokenised, lower-case."""
    for number, row in tsv_rows(path, header=["sentence", "label"]):
        words = tuple(row["sentence"].split())
        yield Example(id=str(number), text=" ".join(words), words=words, label=int(row["label"]))


def conll2000(path: Path) -> Iterator[Example]:
    """CoNLL-2000 chunking (Tjong Kim Sang & Buchholz 2000): tags xpos (Penn) and chunk (IOB2)."""
    held: list[list[str]] = []
    start = 0
    for number, line in lines(path):
        fields = line.split()
        if fields and len(fields) != 3:
            raise UserError(f"{path}, line {number}: {len(fields)} fields; expected word, tag and chunk.")
        if fields:
            start = start or number
            held.append(fields)
        elif held:
            yield _chunked(start, held)
            start, held = 0, []
    if held:
        yield _chunked(start, held)


def _chunked(start: int, rows: list[list[str]]) -> Example:
    words, tags, chunks = zip(*rows, strict=True)
    return Example(id=str(start), text=" ".join(words), words=words, tags={"xpos": tags, "chunk": chunks})


def aligned(source: Path, target: Path) -> Iterator[Example]:
    """Two files, line by line translations of each other (Multi30k, Elliott et al. 2016)."""
    for left, right in zip_longest(lines(source), lines(target)):
        if left is None or right is None:
            raise UserError(f"{source} and {target}: not the same number of lines, so not translations line by line.")
        yield Example(id=str(left[0]), text=left[1].rstrip("\r\n"), target=right[1].rstrip("\r\n"))


def parallel(path: Path) -> Iterator[Example]:
    """Sentence pairs between tabs; a column before them names the set they come from."""
    for number, line in lines(path):
        *origin, source, target = line.rstrip("\r\n").split("\t")
        yield Example(id=str(number), text=source, target=target, extra={"set": origin[0]} if origin else {})


def wikitext(texts: Iterable[tuple[int, str]]) -> Iterator[Example]:
    """WikiText (Merity et al. 2017): one paragraph a text, headings left out.

    `extra` has the number of the article as document (titles are not unique: many are `<unk>`), its title, and the
    section below it.
    """
    titles: list[str] = []
    document = 0
    for number, line in texts:
        line = line.strip()
        heading = re.fullmatch(r"((?:= )+)([^=].*?)((?: =)+)", line)
        if heading:
            level = heading[1].count("=")
            document += level == 1
            titles = [*titles[: level - 1], heading[2]]
        elif line:
            words = tuple(line.split())
            where = {"title": titles[0] if titles else "", "section": " / ".join(titles[1:])}
            yield Example(str(number), " ".join(words), words=words, extra={"document": str(document), **where})


def imdb_hub(number: int, row: Row) -> Example:
    return Example(id=str(number), text=row["text"], label=row["label"])


def sst2_hub(number: int, row: Row) -> Example:
    words = tuple(row["sentence"].split())
    label = None if row["label"] == -1 else row["label"]  # the hub's test labels are hidden
    return Example(id=str(row.get("idx", number)), text=" ".join(words), words=words, label=label)
