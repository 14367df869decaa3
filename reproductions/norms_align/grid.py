"""The cells: a translation model on the Hansards, one for each direction, as trained and with random weights."""

from collections.abc import Mapping
from typing import Any

from lorgnette.looking.controls import RANDOM, TRAINED
from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings

MODELS = {"en-fr": "opus-mt-en-fr", "fr-en": "opus-mt-fr-en"}
CONDITIONS = (TRAINED, RANDOM)
BLOCKS, QUICK_BLOCKS, QUICK_PAIRS = 24, 6, 24
CONTROL_EVERY = 4
"""The control reads every fourth pair."""


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    cells = {}
    for condition in CONDITIONS:
        for direction, model in MODELS.items():
            every = CONTROL_EVERY if condition == RANDOM and not settings.quick else 1
            told = {"model": model, "direction": direction, "condition": condition, "every": every, "seed": 0}
            told |= (
                {"blocks": QUICK_BLOCKS, "limit": QUICK_PAIRS} if settings.quick else {"blocks": BLOCKS, "limit": None}
            )
            labels = {"direction": direction, "condition": condition}
            key = f"{direction}.{condition}".replace(" ", "-")
            cells[key] = Cell("reproductions.norms_align.measure:measured", told, labels)
    return cells


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Refuses at once where a model is not there."""
    machine.require(str(cell.arguments["model"]) for cell in waiting.values())
