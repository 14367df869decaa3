"""The cells: each model under each condition, on the surface and in syntax; gradients of two losses."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from reproductions.clark2019.losses import LOSSES
from reproductions.frame.cells import Cell
from reproductions.frame.conditions import (
    MODELS,
    PUBLISHED_MODEL,
    RANDOM,
    SHUFFLED,
    TRAINED,
    grid_of,
    reachable,
)
from reproductions.frame.settings import Settings

__all__ = ["grid", "reachable"]

CONDITIONS = (TRAINED, RANDOM, SHUFFLED)
SYNTAX_MODELS = (*MODELS, "mpnet")
OPTIONAL = (PUBLISHED_MODEL, "mpnet")
SENTENCES = {"relations": 2000, "parser": 400, "antecedents": 120}
CONTROL_SENTENCES = {"relations": 600, "parser": 400, "antecedents": 120}
QUICK_SENTENCES = {"relations": 120, "parser": 60, "antecedents": 40}
STEPS, QUICK_STEPS = 600, 20
GRADIENT_SENTENCES, QUICK_GRADIENT_SENTENCES = 200, 8


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Models as trained come first. Those that are no dependency of ours are optional."""
    surface = grid_of(settings, "reproductions.clark2019.measure:measure", CONDITIONS)
    named = {key: replace(cell, labels={"kind": "surface", **cell.labels}) for key, cell in surface.items()}
    return named if settings.published else {**named, **_gradients(settings), **_syntax(settings)}


def _gradients(settings: Settings) -> dict[str, Cell]:
    out = {}
    for which, asked in LOSSES.items():
        texts = QUICK_GRADIENT_SENTENCES if settings.quick else GRADIENT_SENTENCES
        arguments = {"texts": texts} | ({} if which == "gradients" else {"which": which})
        labels = {"kind": "gradients", "model": asked.model, "which": which}
        out[which] = Cell("reproductions.clark2019.measure_gradients:measure", arguments, labels, optional=True)
    return out


def _syntax(settings: Settings) -> dict[str, Cell]:
    out = {}
    models = ("minilm",) if settings.quick else SYNTAX_MODELS
    for condition, kind, model in product(CONDITIONS, SENTENCES, models):
        if (kind, condition) == ("antecedents", SHUFFLED):  # shuffled passages have no mentions
            continue
        counts = QUICK_SENTENCES if settings.quick else SENTENCES if condition == TRAINED else CONTROL_SENTENCES
        where = {"model": model, "condition": condition}
        arguments: dict[str, Any] = {**where, "sentences": counts[kind], "seed": settings.seeds[0]}
        if kind == "parser":
            arguments["steps"] = QUICK_STEPS if settings.quick else STEPS
        function = f"reproductions.clark2019.measure_syntax:{kind}"
        key = f"{kind}-{model}.{condition}".replace(" ", "-")
        out[key] = Cell(function, arguments, {"kind": kind, **where}, optional=model in OPTIONAL)
    return out
