"""Pure-attention models trained from word vectors: anisotropy by depth and by λ, explanations, replaced weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.fosse2023 import grid
from reproductions.frame.cells import Cell, scratch_of
from reproductions.frame.parts import Part

if TYPE_CHECKING:
    from reproductions.frame.record import Settings


def size_of(quick: bool) -> grid.Size:
    return grid.QUICK if quick else grid.FULL


def cells(quick: bool, seeds: Sequence[int]) -> dict[str, Cell]:
    return grid.cells(size_of(quick), seeds)


def later(key: str) -> bool:
    """Models from random vectors, and those trained for longer, are there to explain: everything else comes first."""
    return "-late-" in key or any(f"-{vectors}-" in key for vectors in grid.OTHERS)


def prepare(settings: "Settings", waiting: Mapping[str, Cell]) -> None:
    """Tokenises each corpus once."""
    from reproductions.fosse2023.cell import prepare_texts

    first = {cell.arguments["corpus"]: cell for cell in reversed(list(waiting.values()))}
    for cell in first.values():
        prepare_texts(cell.arguments, settings.data, Path(scratch_of(settings)))


def part(settings: "Settings", done: Mapping[str, Any]) -> Part:
    from reproductions.fosse2023.attention_page import part_of

    return part_of(settings, size_of(settings.quick), done)
