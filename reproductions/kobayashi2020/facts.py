"""What the prose about Kobayashi et al. 2020 needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.claims import Claim
from reproductions.frame.conditions import PUBLISHED_MODEL, SINGLE, TRAINED
from reproductions.frame.finished import Finished
from reproductions.kobayashi2020.claims import KIND_NAMES, models, sink, within
from reproductions.kobayashi2020.grid import CENTRED, CENTRED_COUNT


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    trained = {model: cells.one(model=model, condition=TRAINED) for model in models(cells)}
    first = next(iter(trained.values()))
    segments = first.attrs["segments"]
    told = {model: _model(cell) for model, cell in trained.items()}
    for model, one in told.items():
        single = cells.of(model=model, condition=SINGLE)
        one["single"] = float(within(single[0].result, sink(trained[model])).mean()) if single else None
    return {
        "models": told,
        "centred": [model for model in told if cells.of(model=model, part=CENTRED)],
        "constant_segments": CENTRED_COUNT,
        "between": [model for model, one in told.items() if one["between_layers"]],
        "fewer": {m: cell.attrs["segments"] for m, cell in trained.items() if cell.attrs["segments"] < segments},
        "own_model": PUBLISHED_MODEL,
        "own_model_measured": PUBLISHED_MODEL in trained,
        "segments": segments,
        "stronger": lambda id, kind: [m for m in told if _below_zero(claims.get(f"{m}-{kind}-{id}"))] or ["no model"],
        "blocks": first.sizes["block"],
        "conditions": cells.labels("condition"),
    }


def _below_zero(claim: Claim | None) -> bool:
    return claim is not None and claim.estimate.high is not None and claim.estimate.high < 0


def _model(cell: Any) -> dict[str, Any]:
    kind = sink(cell)
    pooled = float(cell["spearman_all"].sel(kind=kind).mean())
    inside = float(within(cell, kind).mean())
    return {
        "sink": KIND_NAMES[kind],
        "pooled": pooled,
        "within": inside,
        # More than half of the pooled correlation is gone within layers.
        "between_layers": abs(inside) < abs(pooled) / 2,
    }
