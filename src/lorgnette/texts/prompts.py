"""Prompts in named parts, with or without an answer: a JSONL file with one prompt on each line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lorgnette.errors import UserError, shown
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example, Span
from lorgnette.texts.files import content, existing_file
from lorgnette.texts.parts import MESSAGES, answered, chat, prompt, refuse_name
from lorgnette.texts.tables import jsonl_rows
from lorgnette.types import Row

PARTS, TEXT, ANSWER, ID = "parts", "text", "answer", "id"
HOW = (
    'Expected {"parts": {"document 1": "…", "question": "…"}}, {"text": "…", "parts": [["document 1", 0, 57], …]} or '
    '{"messages": [{"role": "user", "content": "…"}]}, each perhaps with an "answer".'
)


def prompt_corpus(path: str | Path) -> Corpus:
    """The prompts of a JSONL file, in order.

        {"parts": {"document 1": "…", "question": "…"}, "answer": " …"}     parts, joined by line ends
        {"text": "…", "parts": [["document 1", 0, 57], …]}                  parts as characters of the text
        {"messages": [{"role": "user", "content": {"document 1": "…", "question": "…"}}], "answer": "…"}

    A content may be one text or named parts. `id` names the prompt (by default, the number of its line); other fields
    are kept in `extra`.
    """
    path = existing_file(path)

    def read() -> Iterator[Example]:
        number = 0
        for number, row in jsonl_rows(path):
            yield prompt_of(row, str(number), f"{path}, line {number}")
        if number == 0:
            raise UserError(f"{path}: no prompts; expected at least one.")

    return Corpus(path.name, read, source=lambda: content(path, "prompts"))


def prompt_of(row: Row, id: str = "prompt", where: str = "The prompt") -> Example:
    """One prompt from the fields of a row; `where` names it in errors."""
    try:
        made = _made(row)
        answer = row.get(ANSWER)
        made = made if answer is None else answered(made, answer)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    used = {PARTS, TEXT, MESSAGES, ANSWER, ID}
    more = {name: value for name, value in row.items() if name not in used}
    return replace(made, id=str(row.get(ID, id)), extra={**more, **made.extra})


def _made(row: Row) -> Example:
    if row.get(MESSAGES) is not None:
        return chat(row[MESSAGES])
    parts, text = row.get(PARTS), row.get(TEXT)
    if isinstance(parts, Mapping) and text is None:
        return prompt(parts)
    if isinstance(text, str) and isinstance(parts, Sequence) and not isinstance(parts, str) and parts:
        return Example("prompt", text, parts=tuple(map(_span, parts)))
    raise UserError(f"no prompt in named parts. {HOW}")


def _span(given: object) -> Span:
    values = [given.get(name) for name in Span._fields] if isinstance(given, Mapping) else given
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 3:
        raise UserError(f"a part of a text is [name, start, end], its characters counted from 0. Got {shown(given)}.")
    name, *ends = values
    if not all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        raise UserError(f"a part of a text is [name, start, end], its characters counted from 0. Got {shown(given)}.")
    refuse_name(name)
    return Span(name, *ends)
