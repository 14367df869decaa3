"""Parquet files, some rows at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, islice

from lorgnette.errors import UserError, optional, outside
from lorgnette.texts.columns import Columns
from lorgnette.texts.divided import MOST, is_large, number_of_parts
from lorgnette.texts.files import File, refuse_long, size_of
from lorgnette.types import ArrowSchema, ArrowType, FileMetaData, ParquetFile, Row, RowGroupMetaData

TOGETHER = 64
"""Rows that are read at a time."""
BUFFER = 1 << 20
"""Bytes of each column that are read at a time: a group of rows is never read whole."""
FETCH = "Is it a whole Parquet file?"


@dataclass(frozen=True)
class RowGroups:
    """Some groups of rows of a file, which follow each other."""

    file: File
    metadata: FileMetaData
    groups: range
    first: int
    """The number of their first row."""
    rows: int
    start: int
    stop: int
    """Where their bytes are, with what lies between them and the next ones."""


def parquet_rows(
    file: File, columns: Columns, wanted: Iterator[bool], part: RowGroups | None = None
) -> Iterator[tuple[int, Row | None]]:
    """Rows with their numbers from 0, as `datasets` and pandas count them; None for each that is not wanted.

    Columns that hold bytes are not read. With `part`, the rows of some groups.
    """
    with _opened(file, None if part is None else part.metadata) as table:
        names = _text_columns(table.schema_arrow, file, columns)
        with outside(f"{file} cannot be read", FETCH):
            groups = None if part is None else list(part.groups)
            batches = table.iter_batches(batch_size=TOGETHER, columns=names, row_groups=groups)
        number = 0 if part is None else part.first
        while True:
            with outside(f"{file}: damaged after row {number}", FETCH):
                batch = next(batches, None)
                turns = [] if batch is None else list(islice(wanted, batch.num_rows))
                chosen = [place for place, turn in enumerate(turns) if turn]
                rows = iter(batch.take(chosen).to_pylist() if batch is not None and chosen else [])
            if batch is None:
                return
            for turn in turns:
                row = next(rows) if turn else {}
                for name, value in row.items():
                    if isinstance(value, str):
                        refuse_long(len(value), f"{file}, row {number}: column {name!r}", "Divide it into texts.")
                yield number, row if turn else None
                number += 1


def number_of_rows(file: File) -> int:
    """How many rows the file says that it has."""
    with _opened(file) as table:
        count: int = table.metadata.num_rows
    return count


def groups_of_rows(file: File) -> list[RowGroups]:
    """The rows of a large file in parts, each of about as many groups of rows; none if the file stays whole."""
    if not is_large(file):
        return []
    with _opened(file) as table:
        metadata = table.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    count = number_of_parts(min(MOST, max(1, len(groups))))
    bounds = [len(groups) * number // count for number in range(count + 1)]
    places = [0, *(_begins(groups[number]) for number in bounds[1:-1]), size_of(file) or 0]
    if count < 2 or places != sorted(places):
        return []
    rows = list(accumulate((group.num_rows for group in groups), initial=0))
    return [
        RowGroups(file, metadata, range(bounds[n], bounds[n + 1]), rows[bounds[n]],
                  rows[bounds[n + 1]] - rows[bounds[n]], places[n], places[n + 1])
        for n in range(count)
    ]  # fmt: skip


def _begins(group: RowGroupMetaData) -> int:
    """The byte at which the first column of a group begins."""
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


@contextmanager
def _opened(file: File, metadata: FileMetaData | None = None) -> Iterator[ParquetFile]:
    parquet = optional("pyarrow.parquet", "corpora")
    if file.suffix.lower() != ".parquet":
        raise UserError(f"{file}: Parquet is compressed inside, and is not read when packed again. Unpack it.")
    with outside(f"{file} cannot be read", FETCH):
        source = file.open("rb")
    with source:
        with outside(f"{file} cannot be read", FETCH):
            options = {"buffer_size": BUFFER, "pre_buffer": False, "page_checksum_verification": True}
            table = parquet.ParquetFile(source, metadata=metadata, **options)
        with table:
            yield table


def _text_columns(schema: ArrowSchema, file: File, columns: Columns) -> list[str]:
    """The columns without bytes: pictures and pickles stay where they are."""
    names: list[str] = schema.names
    columns.check(names, str(file))
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise UserError(f"{file}: two columns are called {double!r}; expected different names.")
    readable = [field.name for field in schema if not _has_bytes(field.type)]
    for name in columns.wanted():
        if name not in readable:
            raise UserError(f"{file}: column {name!r} holds bytes, not text. Write it as a column of strings.")
    return readable


def _has_bytes(kind: ArrowType) -> bool:
    types = optional("pyarrow", "corpora").types
    if types.is_dictionary(kind):
        return _has_bytes(kind.value_type)
    inner = (kind.field(index) for index in range(kind.num_fields)) if types.is_nested(kind) else ()
    is_bytes = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(one(kind) for one in is_bytes) or any(_has_bytes(field.type) for field in inner)
