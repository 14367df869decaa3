"""Plain text: a line a text, or a paragraph a text."""

from collections.abc import Iterator

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus, Turns, whole
from lorgnette.texts.example import Example
from lorgnette.texts.files import File, content, existing, filled_lines, lines, refuse_long


def text_corpus(path: str | File, *, paragraphs: bool = False, name: str | None = None) -> Corpus:
    """A text per line, or per paragraph: lines joined by a space up to a blank line. Blank lines are never texts.

    The id of a text is the number of its (first) line.
    """
    file = existing(path)
    how = f"text paragraphs={paragraphs}"

    def some(wanted: Turns) -> Iterator[Example | None]:
        return _some(file, _paragraphs(file, wanted) if paragraphs else _lines(file, wanted))

    return Corpus(name or file.name, lambda: whole(some), source=lambda: content(file, how), some=some)


def _lines(path: File, wanted: Turns) -> Iterator[Example | None]:
    for number, line in filled_lines(path, wanted):
        yield None if line is None else Example(id=str(number), text=line.rstrip("\r\n"))


def _paragraphs(path: File, wanted: Turns) -> Iterator[Example | None]:
    start, length = 0, 0
    held: list[str] = []
    for number, line in lines(path):
        if line.strip():
            start, length = start or number, length + len(line)
            refuse_long(length, f"{path}: the paragraph at line {start}")
            held.append(line.strip())
        elif held:
            yield Example(id=str(start), text=" ".join(held)) if next(wanted) else None
            start, length, held = 0, 0, []
    if held:
        yield Example(id=str(start), text=" ".join(held)) if next(wanted) else None


def _some(path: File, examples: Iterator[Example | None]) -> Iterator[Example | None]:
    any_yet = False
    for example in examples:
        any_yet = True
        yield example
    if not any_yet:
        raise UserError(f"{path}: only blank lines; expected at least one text.")
