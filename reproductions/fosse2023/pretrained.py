"""Part 3: cones of classes on a fine-tuned encoder, and the anisotropy of its states before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproductions.frame.cells import Cell

if TYPE_CHECKING:
    from reproductions.frame.parts import Part
    from reproductions.frame.record import Settings

FUNCTION = "reproductions.fosse2023.pretrained_cell:finetuned"
CORPORA = ("esnli", "hatexplain", "yelphat")
STARTS = ("pretrained", "random")
"""Where the weights come from: the checkpoint, or torch's generator (the same architecture)."""
SEEDS = 3
"""At most so many of the seeds: these runs take longer than those of part 1."""


@dataclass(frozen=True)
class Run:
    """One fine-tuning."""

    model: str
    corpus: str
    start: str
    seed: int

    @property
    def key(self) -> str:
        return f"pretrained-{self.corpus}-{self.model}-{self.start}-seed{self.seed}"

    def cell(self, quick: bool) -> Cell:
        arguments: dict[str, Any] = {"model": self.model, "corpus": self.corpus, "start": self.start, "seed": self.seed}
        # From nothing there is more to learn: more epochs, and a rate at which it learns at all.
        fresh = self.start == "random"
        arguments |= {"epochs": 10 if fresh else 6, "patience": 3 if fresh else 2}
        arguments |= {"learning_rate": 1e-4 if fresh else 5e-5, "batch_size": 64, "max_length": 150}
        arguments |= {"limit": None, "draws": 20}
        if quick:
            arguments |= {"epochs": 1, "limit": 192}
        return Cell(FUNCTION, arguments)


def runs(quick: bool, seeds: Sequence[int]) -> list[Run]:
    """minilm from its checkpoint, then from random weights, then e5-small with one seed: another encoder."""
    if quick:
        return [Run("minilm", "hatexplain", start, seed) for start in STARTS for seed in seeds[:1]]
    grid = [Run("minilm", corpus, start, seed) for start in STARTS for corpus in CORPORA for seed in seeds[:SEEDS]]
    return grid + [Run("e5-small", corpus, "pretrained", seed) for corpus in CORPORA for seed in seeds[:1]]


def cells(quick: bool, seeds: Sequence[int]) -> dict[str, Cell]:
    """The fine-tunings, by key."""
    return {run.key: run.cell(quick) for run in runs(quick, seeds)}


def part(settings: "Settings", done: Mapping[str, Any]) -> "Part":
    """Tables, claims and figures of the finished cells."""
    from reproductions.fosse2023.pretrained_page import page_part

    return page_part(settings, done)
