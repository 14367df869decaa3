"""What the prose needs to know."""

from collections.abc import Mapping
from math import exp
from typing import Any

import numpy as np

from reproductions.cancellation_by_layer.measure import MIDDLE
from reproductions.frame.claims import HOLDS, Claim
from reproductions.frame.finished import Finished
from reproductions.sink_as_bias.grid import FULL, LARGE, LARGE_MODELS, LENGTHS, QUICK, SINKS, USUAL
from reproductions.sink_as_bias.readings import KINDS, Readings, level


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r = Readings(cells)
    return {
        "models": r.models,
        "lengths": r.lengths,
        "every_length": LENGTHS,
        "usual": USUAL,
        "size": QUICK if cells.settings.quick else FULL,
        "large": LARGE,
        "large_models": [model for model in LARGE_MODELS if model in r.models],
        "share": {model: exp(level(r.ratio(model, "mean", "zero"))) for model in r.models},
        "share_average": {model: exp(level(r.ratio(model, "mean", "average"))) for model in r.models},
        "share_word": {model: exp(level(r.ratio(model, "mean", "average", middle=True))) for model in r.models},
        "shares": {id: exp(claims[id].estimate.value) for id in ("fifth", "fifth-average", "word-average")},
        "no_sink": _no_sink(r),
        "constancy": {model: r.of_sinks(model, "constancy") for model in r.models},
        "same": claims["constant"].estimate.value,
        "neutral": _neutral(r),
        "loss": _loss(r),
        "short": _short(r),
        "below_fifth_average": [m for m in r.models if claims[f"{m}-fifth-average"].verdict == HOLDS],
    }


def _neutral(r: Readings) -> dict[str, float]:
    """How far the states of MiniLM move if [CLS] has no value, and if it has the mean of all."""
    if "minilm" not in r.models:
        return {}
    change = r.cell("minilm")["change"].sel(kind="cls").mean("block")
    return {how: float(change.sel(replacement=how)) for how in ("zero", "average")}


def _loss(r: Readings) -> dict[str, float]:
    """Rise in the loss of the language model."""
    found = [m for m in r.models if "loss_change" in r.cell(m)]
    if not found:
        return {}
    loss = r.cell(found[0])["loss_change"].sel(kind=list(SINKS[found[0]])).mean(("kind", "block"))
    return {how: float(loss.sel(replacement=how)) for how in ("average", "mean")}


def _no_sink(r: Readings) -> dict[str, Any]:
    """The special token that gets least weight, which is no sink if a word gets as much."""
    weights = {
        (model, kind): float(r.cell(model)["weight"].sel(kind=kind).mean())
        for model in r.models
        for kind in SINKS[model]
    }
    (model, kind), least = min(weights.items(), key=lambda item: item[1])
    cell = r.cell(model)
    others = [one for one in SINKS[model] if one != kind]
    return {
        "model": model,
        "token": KINDS[kind],
        "weight": least,
        "word": float(cell["weight"].sel(kind=MIDDLE).mean()),
        "constancy": float(cell["constancy"].sel(kind=kind).mean()),
        "others": float(cell["constancy"].sel(kind=others).mean()) if others else None,
    }


def _short(r: Readings) -> dict[str, Any]:
    """The language model's shortest texts: the share of the change that is left with the mean, by block."""
    model, length = LARGE_MODELS[0], LENGTHS[0]
    if not r.cells.of(model=model, length=length):
        return {}
    shares = np.exp(r.ratio(model, "mean", "average", length))
    cell = r.cell(model, length)
    worst = int(shares.argmax())
    change = cell["change"].sel(kind=SINKS[model][0]).isel(block=worst)
    same = cell["constancy"].sel(kind=SINKS[model][0]).mean("head")
    return {
        "share": exp(float(np.log(shares).mean())),
        "rest": exp(float(np.log(np.delete(shares, worst)).mean())),
        "worst": {how: float(change.sel(replacement=how)) for how in ("average", "mean")},
        "first": float(same.isel(layer=0)),
        "last": float(same.isel(layer=slice(len(same) // 2, None)).mean()),
    }
