"""Part 4, continued: a labelling task. Is there a cone for every part of speech?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproductions.frame.cells import Cell

if TYPE_CHECKING:
    from reproductions.frame.parts import Part
    from reproductions.frame.record import Settings

FUNCTION = "reproductions.fosse2023.tagging_cell:tagged"
STARTS = ("pretrained", "random")
SEEDS = 3


def key(start: str, seed: int) -> str:
    return f"tagging-minilm-{start}-seed{seed}"


def cells(quick: bool, seeds: Sequence[int]) -> dict[str, Cell]:
    """minilm with a linear layer on every word, from its checkpoint and from random weights."""
    found = {}
    for start in STARTS[:1] if quick else STARTS:
        for seed in seeds[: 1 if quick else SEEDS]:
            told: dict[str, Any] = {"model": "minilm", "start": start, "seed": seed, "steps": 600, "batch_size": 64}
            told |= {"learning_rate": 5e-5 if start == "pretrained" else 2e-4, "draws": 20, "limit": None}
            if quick:
                told |= {"steps": 12, "batch_size": 16, "limit": 128}
            found[key(start, seed)] = Cell(FUNCTION, told)
    return found


def part(settings: "Settings", done: Mapping[str, Any]) -> "Part":
    """Tables, claims and figures of the finished cells."""
    from reproductions.fosse2023.tagging_page import page_part

    return page_part(settings, done)
