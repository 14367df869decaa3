"""The cells of Kobayashi et al. 2020: each model as trained, its two controls, and two other kinds of text."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.conditions import RANDOM, SHUFFLED, SINGLE, TRAINED, WIKITEXT, grid_of, reachable
from reproductions.frame.settings import Settings

__all__ = ["grid", "reachable"]


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    conditions = (TRAINED, RANDOM, SHUFFLED) if settings.quick else (TRAINED, RANDOM, SHUFFLED, SINGLE, WIKITEXT)
    return grid_of(settings, "reproductions.kobayashi2020.measure:measure", conditions)
