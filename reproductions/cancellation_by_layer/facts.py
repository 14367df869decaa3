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
    LENGTHS,
    LONG,
    QUICK,
    SENTENCES,
    USUAL,
)
from reproductions.cancellation_by_layer.readings import Readings, level
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished

_CLOSE = 0.25
"""How far a number may be from another, as a share of it, to be called about the same."""
_SMALL, _CLEAR = 0.1, 0.3
"""Small and medium correlations by Cohen's (1988) convention."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r = Readings(cells)
    models = {model: _model(r, model) for model in r.models}
    by_relative = sorted(models, key=lambda model: models[model]["relative"])
    # Of the relative norm: a head's scale is no part of it.
    shares = {
        m: [level(r.sink(m, p, USUAL, "relative")) for p in ("between_layers", "between_heads")] for m in r.models
    }
    inside = {m: level(r.punctuation(m, "inside_heads")) for m in r.models}
    return {
        "strongest": {"model": by_relative[0], **models[by_relative[0]]},
        "weakest": {"model": by_relative[-1], **models[by_relative[-1]]},
        "hidden": [m for m, one in models.items() if one["relative"] < -_CLEAR and abs(one["pooled"]) < _SMALL],
        "by_layers": [m for m, (layers, heads) in shares.items() if layers < heads],
        "by_heads": [m for m, (layers, heads) in shares.items() if layers >= heads],
        "inside": [m for m in r.models if inside[m] < -_CLEAR],
        "ratios": {
            name: float(np.exp(np.mean([np.log(one[f"{key}_ratio"]) for one in models.values()])))
            for name, key in (("weight", "sent_weight"), ("norm", "sent_norm"), ("change", "change"))
        },
        "models": models,
        "off": [m for m, one in models.items() if abs(one["change_ratio"] / one["sent_norm_ratio"] - 1) > _CLOSE],
        "lengths": r.lengths,
        "usual": USUAL,
        "longest": LENGTHS[-1],
        "size": QUICK if cells.settings.quick else FULL,
        "large": LARGE,
        "long": LONG,
        "large_long": LARGE_LONG,
        "large_models": [model for model in LARGE_MODELS if model in models],
        "sentences": SENTENCES,
        "loss_alike": len({claims[f"{m}-loss"].estimate.value > 0 for m in LOSS if f"{m}-loss" in claims}) == 1,
        "loss_models": [model for model in LOSS if f"{model}-loss" in claims],
    }


def _model(r: Readings, model: str) -> dict[str, float]:
    names = ("pooled", "within_layers", "within_heads", "between_layers", "between_heads", "inside_heads")
    out = {name: level(r.sink(model, name)) for name in names}
    out["relative"] = level(r.sink(model, "pooled", USUAL, "relative"))
    out["punctuation"] = level(r.punctuation(model, "pooled"))
    ratios = ("change", "sent_weight", "sent_norm")
    return out | {f"{name}_ratio": float(np.exp(level(r.ratio(model, name)))) for name in ratios}
