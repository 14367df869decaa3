"""What the prose needs to know: numbers of each model, and where the sign turns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.cancellation_by_layer.claims import LOSS
from reproductions.cancellation_by_layer.grid import (
    FULL,
    LARGE,
    LARGE_LONG,
    LARGE_MODELS,
    LONG,
    QUICK,
    SENTENCES,
    USUAL,
)
from reproductions.cancellation_by_layer.readings import Readings, level
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r = Readings(cells)
    models = {model: _model(r, model) for model in r.models}
    return {
        "models": models,
        "lengths": r.lengths,
        "usual": USUAL,
        "size": QUICK if cells.settings.quick else FULL,
        "large": LARGE,
        "long": LONG,
        "large_long": LARGE_LONG,
        "large_models": [model for model in LARGE_MODELS if model in models],
        "sentences": SENTENCES,
        "reversed": [model for model, one in models.items() if one["pooled"] < 0 < one["within_heads"]],
        "loss_models": [model for model in LOSS if f"{model}-loss" in claims],
    }


def _model(r: Readings, model: str) -> dict[str, float]:
    names = ("pooled", "within_layers", "within_heads", "between_layers", "between_heads", "inside_heads")
    out = {name: level(r.sink(model, name)) for name in names}
    out["relative"] = level(r.sink(model, "pooled", USUAL, "relative"))
    out["punctuation"] = level(r.punctuation(model, "pooled"))
    ratios = ("change", "sent_weight", "sent_norm")
    return out | {f"{name}_ratio": float(np.exp(level(r.ratio(model, name)))) for name in ratios}
