"""Plain text: a line a text, or a paragraph a text."""

from collections.abc import Iterator

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus, Turns, in_parts, whole
from lorgnette.texts.divided import mark_of, stretches
from lorgnette.texts.example import Example
from lorgnette.texts.files import File, Stretch, content, existing, filled_lines, id_in, lines, refuse_long


def text_corpus(path: str | File, *, paragraphs: bool = False, name: str | None = None) -> Corpus:
    """A text per line, or per paragraph: lines joined by a space up to a blank line. Blank lines are never texts.

    The id of a text is the number of its (first) line; in a large file, the byte where its part begins, and its line
    from there: "1048576:12".
    """
    file, name = existing(path), name or existing(path).name
    how = f"text paragraphs={paragraphs}"

    def of(part: File, called: str) -> Corpus:
        def some(wanted: Turns) -> Iterator[Example | None]:
            return _some(part, _paragraphs(part, wanted) if paragraphs else _lines(part, wanted))

        return Corpus(called, lambda: whole(some), source=lambda: content(part, how), some=some)

    parts = [] if paragraphs else [of(part, f"{part.start}-{part.stop}") for part in stretches(file)]
    return in_parts(name, parts, mark=lambda: mark_of(file)) if parts else of(file, name)


def _lines(path: File, wanted: Turns) -> Iterator[Example | None]:
    for number, line in filled_lines(path, wanted):
        yield None if line is None else Example(id=id_in(path, number), text=line.rstrip("\r\n"))


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
    if not any_yet and not isinstance(path, Stretch):
        raise UserError(f"{path}: only blank lines; expected at least one text.")
