"""The syntactic part of Clark et al. 2019: which cells there are, and what they found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.conditions import MODELS, RANDOM, SHUFFLED, TRAINED, finished, there
from reproductions.frame.record import Settings

CONDITIONS = (TRAINED, RANDOM, SHUFFLED)
KINDS = ("relations", "parser", "antecedents")
SENTENCES = {"relations": 2000, "parser": 400, "antecedents": 120}
CONTROL_SENTENCES = {"relations": 600, "parser": 400, "antecedents": 120}
QUICK_SENTENCES = {"relations": 120, "parser": 60, "antecedents": 40}
STEPS, QUICK_STEPS = 600, 20
MORE_MODELS = ("mpnet",)
"""Models that have no surface part."""
_CELL = "reproductions.clark2019.syntax_cell"

Syntax = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""kind → model → condition → what its cell measured"""


def models(settings: Settings) -> tuple[str, ...]:
    """Those of the surface part, and mpnet where it is in the folder of models."""
    more = [name for name in MORE_MODELS if settings.models and Path(settings.models, name).is_dir()]
    found = (*there(settings), *(() if settings.quick else more))
    if settings.only is not None:
        return tuple(name for name in settings.part((*MODELS, *MORE_MODELS)) if name in found)
    return found


def key(kind: str, model: str, condition: str) -> str:
    return f"{kind}-{model}.{condition}".replace(" ", "-")


def cells(settings: Settings) -> dict[str, Cell]:
    """All cells of the models that are there, those as trained first."""
    return {key(*which): cell for which, cell in _asked(settings).items()}


def _asked(settings: Settings) -> dict[tuple[str, str, str], Cell]:
    out = {}
    for condition in CONDITIONS:
        for kind in KINDS:
            if kind == "antecedents" and condition == SHUFFLED:  # shuffled passages have no mentions
                continue
            counts = QUICK_SENTENCES if settings.quick else SENTENCES if condition == TRAINED else CONTROL_SENTENCES
            shared = {"condition": condition, "sentences": counts[kind], "seed": settings.seeds[0]}
            if kind == "parser":
                shared["steps"] = QUICK_STEPS if settings.quick else STEPS
            for model in models(settings):
                out[kind, model, condition] = Cell(f"{_CELL}:{kind}", {"model": model, **shared})
    return out


def run(settings: Settings, name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """What every cell measured; kinds and models without any are left out."""
    asked = _asked(settings)
    done = finished(settings, {key(*which): cell for which, cell in asked.items()}, name)
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, model, condition in asked:
        if (found := done.get(key(kind, model, condition))) is not None:
            out.setdefault(kind, {}).setdefault(model, {})[condition] = found
    return out


def sources(found: Syntax) -> dict[str, Any]:
    """What every condition was computed from: hashes, counts, fingerprints."""
    kept = ("rows", "features", "head_is_next")
    return {
        f"{kind}, {model}, {condition}": {name: part for name, part in cell.items() if name not in kept}
        for kind, models_ in found.items()
        for model, cells_ in models_.items()
        for condition, cell in cells_.items()
    }
