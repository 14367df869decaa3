"""The cells of Kobayashi et al. 2020: each model as trained, its two controls, and two other kinds of text."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.conditions import (
    BLOCKS,
    FEWER,
    MODELS,
    OPTIONAL,
    QUICK_BLOCKS,
    QUICK_COUNT,
    RANDOM,
    SHUFFLED,
    SINGLE,
    TRAINED,
    WIKITEXT,
    grid_of,
    reachable,
)
from reproductions.frame.segments import COUNT
from reproductions.frame.settings import Settings

__all__ = ["grid", "reachable"]
WORDS, CENTRED = "words", "centred"
CENTRED_COUNT = 256
"""About a quarter of the segments, in as many blocks: what constants change is large beside their intervals."""
WORDS_PART = 4
"""A quarter of the segments has as many occurrences as the correlations with frequency are computed from."""


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    conditions = (TRAINED, RANDOM, SHUFFLED) if settings.quick else (TRAINED, RANDOM, SHUFFLED, SINGLE, WIKITEXT)
    models = (*MODELS, "mpnet")
    cells = grid_of(settings, "reproductions.kobayashi2020.measure:measure", conditions, models)
    for model in () if settings.quick or settings.published else models:
        arguments = {"model": model, "count": min(COUNT // WORDS_PART, FEWER.get(model, COUNT)), "specials": False}
        labels = {"model": model, "part": WORDS}
        function = "reproductions.kobayashi2020.measure:frequency_of_words"
        cells[f"{model}.words"] = Cell(function, arguments, labels, optional=model in OPTIONAL)
    for model in () if settings.published else ("minilm",) if settings.quick else models:
        count, blocks = (QUICK_COUNT, QUICK_BLOCKS) if settings.quick else (CENTRED_COUNT, BLOCKS)
        arguments = {"model": model, "count": min(count, FEWER.get(model, count)), "blocks": blocks}
        cells[f"{model}.centred"] = Cell(
            "reproductions.kobayashi2020.measure:measure_centred",
            {**arguments, "seed": settings.seeds[0]},
            {"model": model, "part": CENTRED},
            optional=model in OPTIONAL,
        )
    return cells
