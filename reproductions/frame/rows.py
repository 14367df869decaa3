"""All finished cells of a study in one file, `cells.csv`: a row for each cell, a column for each of its numbers.

What lies in dictionaries has a column of its own, named by its path: `cell.arguments.seed`,
`result.metrics.test.accuracy`. An entry is JSON, so that it comes back exactly; text stands bare where no one could
take it for JSON. An empty entry says that the cell has no such value. `pandas.read_csv` reads the file: numbers are
numbers, lists are text in JSON.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from lorgnette.errors import UserError
from lorgnette.files import written_whole

KEY = "key"
Document = dict[str, Any]


def read(path: Path) -> dict[str, Document]:
    """The documents of all cells, by key; none where there is no such file."""
    if not path.is_file():
        return {}
    csv.field_size_limit(sys.maxsize)  # an attention map is longer than csv expects of an entry
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        names = next(lines, [])
        if names[:1] != [KEY]:
            raise UserError(f"{path} is no table of cells: its first column must be {KEY!r}.")
        paths = [name.split(".") for name in names]
        documents: dict[str, Document] = {}
        for line in lines:
            if len(line) != len(names):
                raise UserError(
                    f"{path}, line {lines.line_num}: {len(line)} entries, expected {len(names)}. Was the file cut off?"
                )
            documents[line[0]] = _nested(zip(paths[1:], line[1:], strict=True))
    return documents


def write(path: Path, documents: Mapping[str, Document]) -> None:
    """Rows in the order of their keys; columns in the order in which the cells have them."""
    flat = {key: dict(_entries(documents[key])) for key in sorted(documents)}
    names: list[str] = []
    for entries in flat.values():
        _add(names, entries)
    with written_whole(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([KEY, *names])
        lines.writerows([key, *(entries.get(name, "") for name in names)] for key, entries in flat.items())


def _entries(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value and all(name and "." not in name for name in value):
        for name, part in value.items():
            yield from _entries(part, f"{path}.{name}" if path else name)
    else:
        yield path, _text(value)


def _add(names: list[str], entries: Mapping[str, str]) -> None:
    """Names that are new go behind the one that they follow in this cell."""
    if entries.keys() <= set(names):
        return
    place = 0
    for name in entries:
        if name not in names:
            names.insert(place, name)
        place = names.index(name) + 1


def _nested(entries: Any) -> Document:
    document: Document = {}
    for path, text in entries:
        if text:
            place = document
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = _value(text)
    return document


def _text(value: Any) -> str:
    if isinstance(value, str) and value and _value(value) is value:
        return value
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _value(text: str) -> Any:
    """What JSON says, and the text itself where it is none: NaN is no JSON."""
    try:
        return json.loads(text, parse_constant=_refused)
    except ValueError:
        return text


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
