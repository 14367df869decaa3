"""The English–French Hansards with hand-made links (Och & Ney 2000), as the repository awesome-align releases them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lorgnette.errors import UserError
from lorgnette.texts.alignments import Links
from lorgnette.texts.files import lines

FOLDER = "hansards_en_fr"
SOURCE = "github.com/neulab/awesome-align, examples/enfr.src-tgt, enfr.gold and enfr.awesome-align.out"
_LINK = re.compile(r"(\d+)([-p])(\d+)")


@dataclass(frozen=True)
class Pair:
    """Both sentences in words, the gold links and those of a published system, all from source to target, from 0."""

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    gold: Links
    system: frozenset[tuple[int, int]]


def pairs(data: str | None, direction: str) -> list[Pair]:
    """All pairs in order; with direction `fr-en`, French is the source."""
    texts, gold, system = (_lines(data, name) for name in ("enfr.src-tgt", "enfr.gold", "enfr.awesome-align.out"))
    if not len(texts) == len(gold) == len(system):
        raise UserError(
            f"The files of {FOLDER} have {len(texts)}, {len(gold)} and {len(system)} lines; expected one line for each "
            f"pair in all three. They are at {SOURCE}."
        )
    found = [
        _pair(number, text, _links(links, 1), _links(other, 0))
        for number, (text, links, other) in enumerate(zip(texts, gold, system, strict=True), 1)
    ]
    return found if direction == "en-fr" else [_turned(pair) for pair in found]


def _pair(number: int, text: str, gold: Links, system: Links) -> Pair:
    sides = text.split("|||")
    if len(sides) != 2:
        raise UserError(f"enfr.src-tgt, line {number}: expected 'English ||| French', got {text[:40]!r}.")
    source, target = (tuple(side.split()) for side in sides)
    for i, j in gold.possible | system.possible:
        if not (0 <= i < len(source) and 0 <= j < len(target)):
            raise UserError(
                f"Pair {number} of {FOLDER} links word {i} with word {j} (from 0), but has {len(source)} and "
                f"{len(target)} words. Are text and links of the same release?"
            )
    return Pair(str(number), source, target, gold, system.possible)


def _turned(pair: Pair) -> Pair:
    sure, possible, system = ([(j, i) for i, j in links] for links in (pair.gold.sure, pair.gold.possible, pair.system))
    return Pair(pair.id, pair.target, pair.source, Links.of(sure, possible), frozenset(system))


def _links(text: str, first: int) -> Links:
    """Sure links are written `i-j`, possible ones `ipj`, words counted from `first`."""
    found: dict[str, list[Sequence[int]]] = {"-": [], "p": []}
    for item in text.split():
        match = _LINK.fullmatch(item)
        if match is None:
            raise UserError(f"{item!r} is no link; expected 'i-j' (sure) or 'ipj' (possible), as in {SOURCE}.")
        found[match[2]].append((int(match[1]) - first, int(match[3]) - first))
    return Links.of(found["-"], found["p"])


def _lines(data: str | None, name: str) -> list[str]:
    if data is None:
        raise UserError(f"The Hansards are read from a folder of data: give --data, with {FOLDER}/{name} ({SOURCE}).")
    files = [Path(data, FOLDER, name + ending) for ending in ("", ".xz", ".gz")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise UserError(f"There is no {files[0]} (nor .xz or .gz). It comes from {SOURCE}.")
    return [line for _, line in lines(file)]
