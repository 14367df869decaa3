"""What the prose needs to know."""

from collections.abc import Mapping
from math import exp
from typing import Any

from reproductions.frame.claims import HOLDS, Claim
from reproductions.frame.finished import Finished
from reproductions.sink_as_bias.grid import FULL, LARGE, LARGE_MODELS, LENGTHS, QUICK, USUAL
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
        "below_fifth": [m for m in r.models if claims[f"{m}-fifth"].verdict == HOLDS],
        "below_fifth_average": [m for m in r.models if claims[f"{m}-fifth-average"].verdict == HOLDS],
    }
