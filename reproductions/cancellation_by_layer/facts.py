"""What the prose needs to know: numbers of each model, and where the sign turns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.cancellation_by_layer.claims import LOSS
from reproductions.cancellation_by_layer.grid import (
    CENTRED,
    FULL,
    LARGE,
    LARGE_LONG,
    LARGE_MODELS,
    LENGTHS,
    LONG,
    QUICK,
    SENTENCES,
    SINKS,
    USUAL,
)
from reproductions.cancellation_by_layer.measure import MIDDLE
from reproductions.cancellation_by_layer.readings import Readings, level
from reproductions.frame.claims import FAILS, HOLDS, Claim
from reproductions.frame.finished import Finished

_CLOSE = 0.25
"""How far a number may be from another, as a share of it, to be called about the same."""
_CLEAR = 0.3
"""A medium correlation by Cohen's (1988) convention."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r = Readings(cells)
    models = {model: _model(r, model) for model in r.models}
    centred = {model: _centred(r, model) for model in r.centred_models}
    # Of the relative norm: neither a head's scale nor its constant is part of it.
    shares = {
        m: [level(r.sink(m, p, CENTRED, "relative")) for p in ("between_layers", "between_heads")] for m in centred
    }
    inside = {m: level(r.punctuation(m, "inside_heads", CENTRED)) for m in centred}
    return {
        "gone": [m for m in centred if claims[f"{m}-pooled-centred"].verdict == HOLDS and _cancels(claims, m)],
        "relative_stays": [m for m in centred if claims[f"{m}-relative-centred"].verdict == FAILS],
        "by_layers": [m for m, (layers, heads) in shares.items() if layers < heads],
        "by_heads": [m for m, (layers, heads) in shares.items() if layers >= heads],
        "inside": [m for m in inside if inside[m] < -_CLEAR],
        "centred": centred,
        "ratios": {
            name: float(np.exp(np.mean([np.log(one[name]) for one in centred.values()]))) if centred else None
            for name in ("weight", "norm", "change")
        },
        "models": models,
        "off": [m for m, one in centred.items() if abs(one["change"] / one["norm"] - 1) > _CLOSE],
        "lengths": r.lengths,
        "usual": USUAL,
        "longest": LENGTHS[-1],
        "size": QUICK if cells.settings.quick else FULL,
        "large": LARGE,
        "long": LONG,
        "large_long": LARGE_LONG,
        "large_models": [model for model in LARGE_MODELS if model in models],
        "sentences": SENTENCES,
        "loss_models": [model for model in LOSS if f"{model}-loss" in claims],
        "loss_by_mean": _loss_by_mean(r),
    }


def _cancels(claims: Mapping[str, Claim], model: str) -> bool:
    """Whether the raw pooled ρ of the sinks is below zero by its interval."""
    high = claims[f"{model}-pooled"].estimate.high
    return high is not None and high < 0


def _model(r: Readings, model: str) -> dict[str, float]:
    """As the weights are."""
    return {"pooled": level(r.sink(model, "pooled"))}


def _centred(r: Readings, model: str) -> dict[str, float]:
    """Without the constant: pooled ρ of sinks and of punctuation; what weight, norm and the states say of a sink."""
    ratios = {"weight": "sent_weight", "norm": "sent_norm", "change": "change"}
    return {
        "pooled": level(r.sink(model, "pooled", CENTRED)),
        "relative": level(r.sink(model, "pooled", CENTRED, "relative")),
        "punctuation": level(r.punctuation(model, "pooled", CENTRED)),
        **{name: float(np.exp(level(r.ratio(model, key, CENTRED)))) for name, key in ratios.items()},
    }


def _loss_by_mean(r: Readings) -> dict[str, float]:
    """Of the language model: how its loss changes with the heads' mean in place of a value."""
    for model in r.centred_models:
        if "loss_change" in (cell := r.cell(model, CENTRED)):
            change = cell["loss_change"].mean("block")
            return {"sink": float(change.sel(target=SINKS[model][0])), "word": float(change.sel(target=MIDDLE))}
    return {}
