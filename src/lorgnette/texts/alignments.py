"""Gold word alignments: which source word belongs to which target word, surely or possibly."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.texts.example import Example
from lorgnette.texts.files import existing_file, lines

_NAACL = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.]+)?\s*")
_PHARAOH = re.compile(r"(\d+)([-p?])(\d+)([p?]?)")


@dataclass(frozen=True)
class Links:
    """The links of one sentence as (source word, target word), counted from 0. Sure links are possible ones too."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]

    @staticmethod
    def of(sure: Iterable[Sequence[int]], possible: Iterable[Sequence[int]] = ()) -> "Links":
        certain = frozenset((int(source), int(target)) for source, target in sure)
        return Links(certain, certain | {(int(source), int(target)) for source, target in possible})


def read_alignments(path: str | Path, *, first: int = 0) -> dict[str, Links]:
    """A file of gold links, by sentence number from 1, as text: the ids that corpora of aligned lines have.

    Two formats are told apart by their first line: `sentence source target [S|P]` a line, all counted from 1 (word 0 is
    no word), and Pharaoh, a sentence a line, `0-0 1-2 2?3` or `2p3` or `2-3p` with ? or p for possible links; there
    words are counted from `first`.
    """
    path = existing_file(path)
    rows = [(number, line.strip()) for number, line in lines(path)]
    some = next((line for _, line in rows if line), None)
    if some is None:
        raise UserError(f"{path}: no links; expected lines such as '1 1 2 S' or '0-0 1-2'.")
    if _NAACL.fullmatch(some):
        return _naacl(path, rows)
    return {str(number): pharaoh(line, where=f"{path}, line {number}", first=first) for number, line in rows}


def pharaoh(text: str, *, where: str, first: int = 0) -> Links:
    """The links of one sentence in Pharaoh notation."""
    sure: list[tuple[int, int]] = []
    possible: list[tuple[int, int]] = []
    for item in text.split():
        match = _PHARAOH.fullmatch(item)
        if match is None or min(int(match[1]), int(match[3])) < first:
            least = f" (words are counted from {first})" if match else ""
            raise UserError(
                f"{where}: {item!r} is not a link{least}; expected 'source-target' such as '0-0', or '1?2'."
            )
        link = (int(match[1]) - first, int(match[3]) - first)
        (sure if match[2] == "-" and not match[4] else possible).append(link)
    return Links.of(sure, possible)


def links_from(given: Any, where: str) -> Links:
    """Links as a corpus or a user may hold them: Pharaoh text, `Links`, or (sure, possible) pairs of words."""
    if isinstance(given, Links):
        return given
    if isinstance(given, str):
        return pharaoh(given, where=where)
    try:
        sure, possible = given
        return Links.of(sure, possible)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{where}: the alignment is {str(given)[:40]!r}; expected (sure, possible), each pairs of (source, target) "
            "words from 0, or text such as '0-0 1-2 2?3'."
        ) from error


def given_alignments(gold: str | Path | Mapping[str, object], *, first: int = 0) -> dict[str, Links]:
    """Gold links by example id, from a file or a mapping."""
    if isinstance(gold, Mapping):
        return {str(key): links_from(value, f"alignment of {key!r}") for key, value in gold.items()}
    return read_alignments(gold, first=first)


def _naacl(path: Path, rows: list[tuple[int, str]]) -> dict[str, Links]:
    sure: dict[str, list[tuple[int, int]]] = {}
    possible: dict[str, list[tuple[int, int]]] = {}
    for number, line in rows:
        if not line:
            continue
        match = _NAACL.fullmatch(line)
        if match is None:
            raise UserError(f"{path}, line {number}: {line[:40]!r}; expected 'sentence source target S' (or P).")
        sentence, source, target = (int(match[group]) for group in (1, 2, 3))
        for kind in (sure, possible):
            kind.setdefault(str(sentence), [])
        if source and target:  # 0 stands for no word
            (possible if match[4] == "P" else sure)[str(sentence)].append((source - 1, target - 1))
    return {sentence: Links.of(sure[sentence], possible[sentence]) for sentence in sure}


def hansards(pairs: Path, gold: Path) -> Iterator[Example]:
    """The Canadian Hansards aligned by hand (Och & Ney 2000): `source ||| target` a line, and `1-1 1p2` a line.

    Words are counted from 1, and p marks a possible link. Ids are line numbers; `extra["alignment"]` has the links.
    """
    for text, marked in zip_longest(lines(pairs), lines(gold)):
        if text is None or marked is None:
            raise UserError(f"{pairs} and {gold}: not the same number of lines, so not links of these sentences.")
        number, line = text
        source, bar, target = line.partition("|||")
        if not bar:
            raise UserError(f"{pairs}, line {number}: {line[:40]!r}; expected 'source ||| target'.")
        links = pharaoh(marked[1], where=f"{gold}, line {number}", first=1)
        words = " ".join(source.split()), " ".join(target.split())
        yield Example(str(number), words[0], target=words[1], extra={"alignment": links})
