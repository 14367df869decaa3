"""Tables with named columns: CSV, TSV, JSONL, Parquet, and WebDataset shards."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat, zip_longest
from pathlib import Path

from lorgnette.errors import UserError, reason
from lorgnette.texts.columns import Columns
from lorgnette.texts.corpus import Corpus, SizedCorpus, Skipped, Some, Turns, in_parts, whole
from lorgnette.texts.divided import mark_of, stretches
from lorgnette.texts.example import Example
from lorgnette.texts.files import (
    LONGEST_LINE,
    File,
    Stretch,
    content,
    existing,
    filled_lines,
    id_in,
    inner_suffix,
    lines,
)
from lorgnette.texts.parquet import RowGroups, groups_of_rows, number_of_rows, parquet_rows
from lorgnette.texts.pictures import Picture
from lorgnette.texts.webdataset import tar_rows
from lorgnette.types import Json, Row

Part = File | RowGroups
"""What is read at a time: a file, or a part of it."""


def table_corpus(path: str | File, columns: Columns, *, name: str | None = None) -> Corpus:
    """The rows of a table; the id of a row without an id column is the number of its line or row, or its key.

    With a label column the file is read once more, before anything else, to know the classes.
    """
    file, skipped = existing(path), Skipped()
    suffix = inner_suffix(file)
    called = {".parquet": "row", ".tar": "sample"}.get(suffix, "line")

    def rows(part: Part, wanted: Turns) -> Iterator[tuple[int | str, Row | None]]:
        if isinstance(part, RowGroups):
            return parquet_rows(file, columns, wanted, part)
        if suffix == ".parquet":
            return parquet_rows(part, columns, wanted)
        if suffix in (".jsonl", ".ndjson"):
            return some_jsonl_rows(part, wanted)
        if suffix == ".tar":
            return only_wanted(tar_rows(part, columns, skipped), wanted)
        return only_wanted({".csv": csv_rows, ".tsv": tsv_rows}[suffix](part), wanted)

    def located() -> Iterator[tuple[str, Row]]:
        return ((f"{file}, {called} {number}", row) for number, row in rows(file, repeat(True)) if row is not None)

    def labels() -> tuple[str, ...] | None:
        return columns.labels(located()) if columns.label else None

    def reading(part: Part) -> Some:
        where = file if isinstance(part, RowGroups) else part

        def some(wanted: Turns) -> Iterator[Example | None]:
            classes = {label: index for index, label in enumerate(corpus.labels or ())}
            any_yet = False
            for number, row in rows(part, wanted):
                any_yet = True
                if row is None:
                    yield None
                    continue
                example = columns.example(row, f"{where}, {called} {number}", id_in(where, number), classes)
                yield _pictured(example, row, file) if suffix == ".jsonl" else example
            if not any_yet and part is file:
                raise UserError(f"{file}: no rows; expected at least one.")

        return some

    def one_of(part: Part, called: str, size: int | None, classes: Callable[[], tuple[str, ...] | None]) -> Corpus:
        some = reading(part)
        fields: Json = {"labels": classes, "source": lambda: _bytes(part, repr(columns)), "some": some}
        fields["skipped"] = skipped
        if size is None:
            return Corpus(called, lambda: whole(some), **fields)
        return SizedCorpus(called, lambda: whole(some), size=size, **fields)

    name = name or file.name
    divided: Sequence[Stretch | RowGroups] = groups_of_rows(file) if suffix == ".parquet" else ()
    if suffix in (".jsonl", ".ndjson"):
        divided = stretches(file)
    corpus: Corpus
    if divided:
        sizes = [part.rows for part in divided if isinstance(part, RowGroups)]
        parts = [
            one_of(part, f"{part.start}-{part.stop}", size, lambda: corpus.labels)
            for part, size in zip_longest(divided, sizes)
        ]
        corpus = in_parts(name, parts, labels=labels, sizes=sizes, mark=lambda: mark_of(file))
    else:
        corpus = one_of(file, name, number_of_rows(file) if suffix == ".parquet" else None, labels)
    return corpus


def unread_labels(path: str) -> str | None:
    """The column of a CSV, TSV or JSONL file that is called as labels are; None without one."""
    file = Path(path).expanduser()
    readers = {".csv": csv_rows, ".tsv": tsv_rows, ".jsonl": jsonl_rows}
    if not file.is_file() or file.suffix not in readers:
        return None
    _, row = next(readers[file.suffix](file), (0, {}))
    return next((name for name in ("label", "labels", "class", "target_label") if name in row), None)


def _bytes(part: Part, how: str) -> Iterator[bytes]:
    """How a part is read, and its bytes."""
    return content(part.file, how, part.start, part.stop) if isinstance(part, RowGroups) else content(part, how)


def only_wanted(rows: Iterator[tuple[int | str, Row]], wanted: Turns) -> Iterator[tuple[int | str, Row | None]]:
    """The rows of a reader that must parse all of them to tell one from the next."""
    return ((number, row if turn else None) for (number, row), turn in zip(rows, wanted, strict=False))


def _pictured(example: Example, row: Row, file: File) -> Example:
    """The example with the picture that its row names, which stands below the folder of the file."""
    name = row.get("image")
    if not isinstance(name, str) or not name or not isinstance(file, Path):
        return example
    return replace(example, image=Picture(name, file.parent))


def csv_rows(path: File) -> Iterator[tuple[int, Row]]:
    """Rows of a CSV file (RFC 4180: a quoted field may hold commas, quotes and line ends), with their line numbers."""
    # The module refuses fields over 128 KiB; a review, a chapter or a log may be longer, and is read as it is.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    reader = csv.reader((line for _, line in lines(path)), strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as broken:
            raise UserError(f"{path}, line {line}: malformed CSV ({broken}). Check the quotes in that row.") from None
        if fields is None:
            return
        if not fields:  # a blank line
            continue
        if header is None:
            header = _header(fields, path)
        else:
            yield line, _row(header, fields, path, line)


def tsv_rows(path: File, header: list[str] | None = None) -> Iterator[tuple[int, Row]]:
    """Rows of a TSV file: one per line, fields between tabs, quotes being ordinary characters.

    `header` names the columns of a file without a header line.
    """
    for number, line in lines(path):
        line = line.rstrip("\r\n")
        if not line:
            continue
        fields = line.split("\t")
        if header is None:
            header = _header(fields, path)
        else:
            yield number, _row(header, fields, path, number)


def jsonl_rows(path: File) -> Iterator[tuple[int, Row]]:
    """Rows of a JSONL file: one JSON object per line."""
    return ((number, row) for number, row in some_jsonl_rows(path, repeat(True)) if row is not None)


def some_jsonl_rows(path: File, wanted: Turns) -> Iterator[tuple[int, Row | None]]:
    """The same, but None for each row that is not wanted: it is not parsed."""
    for number, line in filled_lines(path, wanted):
        if line is None:
            yield number, None
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as broken:  # numbers of thousands of digits are a ValueError
            raise UserError(
                f"{path}, line {number}: malformed JSON ({reason(broken)}). Expected one object per line."
            ) from broken
        if not isinstance(row, dict):
            kind = type(row).__name__
            raise UserError(f"{path}, line {number}: a JSON {kind}; expected an object with named columns.")
        yield number, row


def _header(fields: list[str], path: File) -> list[str]:
    if len(set(fields)) < len(fields):
        double = next(field for field in fields if fields.count(field) > 1)
        raise UserError(f"{path}, line 1: two columns are called {double!r}; expected a header with different names.")
    return fields


def _row(header: list[str], fields: list[str], path: File, line: int) -> Row:
    if len(fields) != len(header):
        raise UserError(
            f"{path}, line {line}: {len(fields)} fields, but the header has {len(header)} columns. "
            f"Quote fields that hold the separator."
        )
    return dict(zip(header, fields, strict=True))
