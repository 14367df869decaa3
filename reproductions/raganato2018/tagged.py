"""Words with one tag each, a word a line: the format of semantic tags, and of many other label sets."""

from collections.abc import Iterator
from pathlib import Path

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.files import existing_file, lines


def tagged_corpus(path: str | Path, *, label: str = "sem", word: int = 0, tag: int = 1) -> Corpus:
    """Sentences between empty lines, columns between tabs; `word` and `tag` number the columns from 0.

    The Parallel Meaning Bank's releases differ in which column comes first. Lines that begin with # are comments if
    they have no tab.
    """
    file = existing_file(path)
    return Corpus(file.stem, lambda: _sentences(file, label, word, tag))


def _sentences(path: Path, label: str, word: int, tag: int) -> Iterator[Example]:
    rows: list[tuple[str, str]] = []
    start = 1
    for number, line in lines(path):
        if not line.strip():
            if rows:
                yield _example(start, rows, label)
            rows = []
            continue
        if line.startswith("#") and "\t" not in line:
            continue
        columns = line.rstrip("\n").split("\t")
        if len(columns) <= max(word, tag) or not columns[word] or not columns[tag]:
            raise UserError(
                f"{path}, line {number}: {len(columns)} columns; expected a word in column {word + 1} and its tag in "
                f"column {tag + 1}, with a tab between them."
            )
        start = start if rows else number
        rows.append((columns[word], columns[tag]))
    if rows:
        yield _example(start, rows, label)


def _example(start: int, rows: list[tuple[str, str]], label: str) -> Example:
    words, tags = zip(*rows, strict=True)
    return Example(id=str(start), text=" ".join(words), words=words, tags={label: tags})
