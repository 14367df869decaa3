"""What the heads of a translation model do: the cells, with texts and sizes chosen in advance.

Keys begin with "heads-". Maps (relevance, confidence) are made in blocks of texts, so that every number read off them
has an interval; what is lost without a head is a cell for each block, since that is what takes long.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproductions.frame.cells import Cell
from reproductions.frame.parts import Part

if TYPE_CHECKING:
    from reproductions.frame.record import Settings

_HOME = "reproductions.voita2019.heads_cells"
MODEL = "opus-mt-en-fr"
METHODS = ("attnlrp", "ah", "voita2019", "voita2021")
CONFIDENCE = "confidence"
MAPS = (CONFIDENCE, *METHODS)
MULTI30K, UD = "multi30k", "pud"
TRAINED, SHUFFLED, RANDOM = "trained", "shuffled", "random"
CONDITIONS = (TRAINED, SHUFFLED, RANDOM)


@dataclass(frozen=True)
class Size:
    """How many texts. Maps and what is lost without a head: `block` and `without` texts in each of some blocks."""

    block: int = 8
    blocks: int = 8
    control_blocks: int = 4  # the first of them, so that they can be compared pair by pair
    other_block: int = 4  # of the treebank, whose sentences are longer
    roles: int = 240
    trees: int = 480
    counted: int = 10_000
    without: int = 6
    without_blocks: int = 2
    encoder: int = 3  # more texts without the encoder's heads alone, about which the claims are
    encoder_blocks: int = 200


FULL = Size()
QUICK = Size(
    block=4,
    blocks=2,
    control_blocks=2,
    other_block=2,
    roles=24,
    trees=40,
    counted=500,
    without=1,
    without_blocks=1,
    encoder=1,
    encoder_blocks=1,
)


def cells(quick: bool, seeds: Sequence[int]) -> dict[str, Cell]:
    """All runs, what takes longest last; one seed, since nothing is trained (it draws weights and orders of words)."""
    return grid(QUICK if quick else FULL, next(iter(seeds)))


def grid(size: Size, seed: int, model: str = MODEL) -> dict[str, Cell]:
    told = {"model": model, "seed": seed}
    out: dict[str, Cell] = {}
    for condition in CONDITIONS:
        for corpus, texts in ((UD, size.trees), (MULTI30K, size.roles)):
            more = {"corpus": corpus, "condition": condition, "texts": texts, "counted": size.counted}
            out[f"roles-{corpus}-{condition}"] = Cell(f"{_HOME}:roles", {**told, **more})
    for condition in CONDITIONS:
        blocks = size.blocks if condition == TRAINED else size.control_blocks
        for name in MAPS:
            more = {"corpus": MULTI30K, "condition": condition, "maps": [name], "block": size.block, "blocks": blocks}
            out[f"maps-{MULTI30K}-{condition}-{name}"] = Cell(f"{_HOME}:maps", {**told, **more})
    # One cell, because all of it rests on the same translations, which the model makes first.
    more = {"corpus": UD, "condition": TRAINED, "maps": list(MAPS)}
    more |= {"block": size.other_block, "blocks": size.control_blocks}
    out[f"maps-{UD}-{TRAINED}"] = Cell(f"{_HOME}:maps", {**told, **more})
    for number in range(size.without_blocks):
        more = {"corpus": MULTI30K, "texts": size.without, "number": number}
        out[f"without-{MULTI30K}-{number}"] = Cell(f"{_HOME}:without", {**told, **more})
    for number in range(size.encoder_blocks):
        more = {"corpus": MULTI30K, "texts": size.encoder, "number": number, "only": "encoder"}
        more |= {"after": size.without * size.without_blocks}  # texts that were not taken yet
        out[f"without-encoder-{MULTI30K}-{number}"] = Cell(f"{_HOME}:without", {**told, **more})
    return {f"heads-{key}": cell for key, cell in out.items()}


SECONDS = {"roles": 25, "maps": 20, "without": 8}
"""What a cell takes, about, on one core that is not shared."""


def prepare(settings: "Settings", waiting: Mapping[str, Cell]) -> None:
    """Refuses at once where the model is not there; says how long it may take."""
    from reproductions.voita2019.heads_cells import require

    require(MODEL, settings.models)
    total = sum(SECONDS[cell.function.rpartition(":")[2]] for cell in waiting.values())
    print(
        f"heads: {len(waiting)} cells, about {total / max(settings.jobs, 1) / 60:.0f} minutes with {settings.jobs} "
        "jobs on as many cores.",
        file=sys.stderr,
        flush=True,
    )


def part(settings: "Settings", done: Mapping[str, Any]) -> Part:
    """Tables, figures and claims from the finished cells."""
    from reproductions.voita2019.heads_page import part_of

    return part_of(settings, done)
