"""What the prose needs to know."""

from collections.abc import Mapping
from math import exp
from typing import Any

from reproductions.frame.claims import FAILS, HOLDS, Claim
from reproductions.frame.finished import Finished
from reproductions.sink_as_bias.grid import FULL, LARGE, LARGE_MODELS, LENGTHS, QUICK, SINKS, USUAL
from reproductions.sink_as_bias.readings import Readings, level


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
        "share_word": {model: exp(level(r.ratio(model, "mean", "zero", middle=True))) for model in r.models},
        "shares": {id: exp(claims[id].estimate.value) for id in ("fifth", "fifth-average", "word", "swap")},
        "constancy": {model: r.of_sinks(model, "constancy") for model in r.models},
        "same": claims["constant"].estimate.value,
        "neutral": _neutral(r),
        "loss": _loss(r),
        "short": _short(r),
        "rho_out": [m for m in r.models if claims[f"{m}-within-heads"].verdict == FAILS],
        "below_fifth": [m for m in r.models if claims[f"{m}-fifth"].verdict == HOLDS],
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
    return {how: float(loss.sel(replacement=how)) for how in ("zero", "mean")}


def _short(r: Readings) -> float | None:
    """The share of zero's change that is left with the mean, in the language model's shortest texts."""
    model, length = LARGE_MODELS[0], LENGTHS[0]
    return exp(level(r.ratio(model, "mean", "zero", length))) if r.cells.of(model=model, length=length) else None
