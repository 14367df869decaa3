"""Part 4: many classes. How many directions does a model use, do they stay orthogonal, when does accuracy give way?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproductions.frame.cells import Cell

if TYPE_CHECKING:
    from reproductions.frame.parts import Part
    from reproductions.frame.record import Settings

PLANTED = "reproductions.fosse2023.classes_cell:planted"
LABELLED = "reproductions.fosse2023.classes_cell:labelled"
COUNTS = ((2, 64, 256), (4, 32, 128), (8, 16, 512))
"""Numbers of classes, those of one cell together: starting a process takes longer than training one model."""
WIDTHS = (8, 16, 32, 64, 100)
SETS = ("genres", "xpos", "features", "lemmas")
VECTORS = {"glove-100": 100, "random-8": 8, "random-16": 16, "random-32": 32}
"""Name → width of the model for real label sets."""
SEEDS = 3


def planted_key(width: int, counts: Sequence[int], seed: int) -> str:
    return f"classes-planted-width{width}-{'+'.join(map(str, counts))}-seed{seed}"


def labelled_key(name: str, vectors: str, seed: int) -> str:
    return f"classes-{name}-{vectors}-seed{seed}"


def cells(quick: bool, seeds: Sequence[int]) -> dict[str, Cell]:
    """Real label sets, then planted classes; widest first, which take longest."""
    if quick:
        told: dict[str, Any] = {"width": 8, "counts": [2, 8, 32], "seed": seeds[0], "steps": 300, "batch_size": 128}
        found = {planted_key(8, told["counts"], seeds[0]): Cell(PLANTED, told)}
        small = {"width": 16, "source": "random", "seed": seeds[0], "steps": 60, "batch_size": 64, "limit": 2000}
        for name in ("genres", "xpos"):
            found[labelled_key(name, "random-16", seeds[0])] = Cell(LABELLED, {"name": name, **small})
        return found
    found = {}
    for name in SETS:
        for vectors, width in VECTORS.items():
            for seed in seeds[:SEEDS]:
                told = {"name": name, "width": width, "source": vectors.split("-")[0], "seed": seed}
                told |= {"steps": 1200, "batch_size": 512, "limit": None}
                found[labelled_key(name, vectors, seed)] = Cell(LABELLED, told)
    for width in reversed(WIDTHS):
        for counts in reversed(COUNTS):
            for seed in seeds[:SEEDS]:
                told = {"width": width, "counts": list(counts), "seed": seed, "steps": 1200, "batch_size": 512}
                found[planted_key(width, counts, seed)] = Cell(PLANTED, told)
    return found


def part(settings: "Settings", done: Mapping[str, Any]) -> "Part":
    """Tables, claims and figures of the finished cells."""
    from reproductions.fosse2023.classes_page import page_part

    return page_part(settings, done)
