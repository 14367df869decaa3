"""Plain text: a line a text, or a paragraph a text."""

from collections.abc import Iterator

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.files import File, content, existing, lines, refuse_long


def text_corpus(path: str | File, *, paragraphs: bool = False, name: str | None = None) -> Corpus:
    """A text per line, or per paragraph: lines joined by a space up to a blank line. Blank lines are never texts.

    The id of a text is the number of its (first) line.
    """
    file = existing(path)
    read = _paragraphs if paragraphs else _lines
    how = f"text paragraphs={paragraphs}"
    return Corpus(name or file.name, lambda: _some(file, read(file)), source=lambda: content(file, how))


def _lines(path: File) -> Iterator[Example]:
    for number, line in lines(path):
        if line.strip():
            yield Example(id=str(number), text=line.rstrip("\r\n"))


def _paragraphs(path: File) -> Iterator[Example]:
    start, length = 0, 0
    held: list[str] = []
    for number, line in lines(path):
        if line.strip():
            start, length = start or number, length + len(line)
            refuse_long(length, f"{path}: the paragraph at line {start}")
            held.append(line.strip())
        elif held:
            yield Example(id=str(start), text=" ".join(held))
            start, length, held = 0, 0, []
    if held:
        yield Example(id=str(start), text=" ".join(held))


def _some(path: File, examples: Iterator[Example]) -> Iterator[Example]:
    any_yet = False
    for example in examples:
        any_yet = True
        yield example
    if not any_yet:
        raise UserError(f"{path}: only blank lines; expected at least one text.")
