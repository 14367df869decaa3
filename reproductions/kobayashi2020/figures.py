"""The papers' two pictures of attention side by side, mixing ratios by layer, and the correlations with intervals."""

from typing import Any

import altair as alt
import xarray as xr

from lorgnette.figures.charts import COLOURS, KIND_COLOURS
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure, published
from reproductions.frame.statistics import mean_of
from reproductions.kobayashi2020.claims import KIND_NAMES, models
from reproductions.kobayashi2020.grid import CENTRED
from reproductions.kobayashi2020.tables import RATIO_NAMES

SHOWN = (TRAINED, SHUFFLED, RANDOM)
_LESS = "trained, centred"
_CONDITION_COLOURS = dict(
    zip(
        (_LESS, TRAINED, SHUFFLED, RANDOM, "published, BERT"),
        (COLOURS[2], *COLOURS[:2], "#9A9A9A", "black"),
        strict=True,
    )
)


def figures(cells: Finished) -> list[Figure]:
    return [*(weights_and_norms(model, cells) for model in models(cells)), mixing(cells), cancelling(cells)]


def _shown(cells: Finished, model: str) -> dict[str, xr.Dataset]:
    """The conditions that are drawn, as far as they were measured."""
    return {c: cells.one(model=model, condition=c) for c in SHOWN if cells.of(model=model, condition=c)}


def weights_and_norms(model: str, cells: Finished) -> Figure:
    """Above the weights, below the norms, by layer; a column for each condition."""
    shown = _shown(cells, model)
    rows = [
        alt.hconcat(*(_kinds_by_layer(cell, measure, title, c) for c, cell in shown.items())).resolve_scale(
            y="shared" if measure == "weight" else "independent"
        )
        for measure, title in (("weight", "weight Σ α"), ("norm", "norm Σ ‖α f(x)‖"))
    ]
    return Figure(
        f"weights-and-norms-{model}",
        alt.vconcat(*rows),
        f"{model}: weights (above) and norms of the contributions (below) by category of token and layer, mean over "
        "heads. Bands are 95 % intervals over blocks of segments. The norms have their own scale in each column: "
        "random weights make small vectors.",
    )


def _kinds_by_layer(cell: xr.Dataset, measure: str, title: str, condition: str) -> Any:
    rows = [
        {"layer": layer, "kind": name, **_ends(cell[measure].sel(kind=kind, layer=layer))}
        for kind, name in KIND_NAMES.items()
        for layer in cell["layer"].values.tolist()
    ]
    scale = alt.Scale(domain=list(KIND_NAMES.values()), range=[KIND_COLOURS[kind] for kind in KIND_NAMES])
    return _lines(rows, "kind", scale, title).properties(title=condition if measure == "weight" else "")


def _ends(blocks: xr.DataArray) -> dict[str, float | None]:
    """Mean over blocks and the ends of its interval."""
    one = mean_of(blocks)
    return {"mean": one.value, "low": one.low, "high": one.high}


def _lines(rows: list[dict[str, Any]], series: str, scale: Any, title: str) -> Any:
    base = alt.Chart(alt.Data(values=rows), width=200, height=150)
    x = alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0))
    colour = alt.Color(field=series, type="nominal", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1))
    y = alt.Y(field="mean", type="quantitative", title=title)
    band = base.mark_area(opacity=0.2).encode(
        x=x, y=alt.Y(field="low", type="quantitative", title=title), y2=alt.Y2(field="high"), color=colour
    )
    return alt.layer(band, base.mark_line(point=True).encode(x=x, y=y, color=colour))


def mixing(cells: Finished) -> Figure:
    """The five ratios by layer."""
    scale = alt.Scale(domain=list(RATIO_NAMES.values()), range=list(COLOURS[:5]))
    charts = []
    for model in models(cells):
        for condition, cell in _shown(cells, model).items():
            rows = [
                {"layer": layer, "ratio": name, **_ends(cell["mixing"].sel(ratio=ratio, layer=layer))}
                for ratio, name in RATIO_NAMES.items()
                for layer in cell["layer"].values.tolist()
            ]
            chart = _lines(rows, "ratio", scale, "mixing ratio").properties(title=f"{model}, {condition}")
            charts.append(chart)
    drawn = alt.concat(*charts, columns=len(SHOWN)).resolve_scale(y="shared", x="independent")
    return Figure(
        "mixing-ratios",
        drawn,
        "Mixing ratio: the share of a token's new vector that comes from other tokens. Attn: attention alone; Res: "
        "with the residual connection; Ln: with LayerNorm too; W: by weights, N: by norms. The norms are raw, not "
        "centred.",
    )


def cancelling(cells: Finished) -> Figure:
    """ρ of α with ‖f(x)‖ by category of token: models, controls, and the published numbers."""
    printed = published("kobayashi2020")["numbers"]["spearman"]["value"]
    charts = []
    for model in models(cells):
        rows: list[dict[str, Any]] = [
            {"kind": name, "what": "published, BERT", "mean": printed[kind], "low": None, "high": None}
            for kind, name in KIND_NAMES.items()
        ]
        less = [(_LESS, cell.result) for cell in cells.of(model=model, part=CENTRED)]
        for condition, cell in [*less, *_shown(cells, model).items()]:
            rows += [
                {"kind": name, "what": condition, **_ends(cell["spearman_all"].sel(kind=kind))}
                for kind, name in KIND_NAMES.items()
            ]
        charts.append(_dots(rows).properties(title=model if model != PUBLISHED_MODEL else f"{model} (the papers' own)"))
    return Figure(
        "cancelling",
        alt.hconcat(*charts).resolve_scale(x="shared"),
        "Spearman of α with ‖f(x)‖ by category of token. Left of zero the two cancel: tokens with much weight have "
        "short vectors. Centred: of values minus the mean of their head, which no free constant moves. Bars are 95 % "
        "intervals over blocks of segments.",
    )


def _dots(rows: list[dict[str, Any]]) -> Any:
    base = alt.Chart(alt.Data(values=rows), width=230, height=220)
    order = list(KIND_NAMES.values())
    names = list(_CONDITION_COLOURS)
    y = alt.Y(field="kind", type="nominal", sort=order, title=None)
    offset = alt.YOffset(field="what", type="nominal", sort=names)
    scale = alt.Scale(domain=names, range=list(_CONDITION_COLOURS.values()))
    colour = alt.Color(field="what", type="nominal", scale=scale, title=None)
    x = alt.X(field="mean", type="quantitative", title="Spearman of α with ‖f(x)‖")
    low = alt.X(field="low", type="quantitative", title="Spearman of α with ‖f(x)‖")
    bars = base.mark_rule().encode(x=low, x2=alt.X2(field="high"), y=y, yOffset=offset, color=colour)
    zero = (
        alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(opacity=0.4).encode(x=alt.X(field="at", type="quantitative"))
    )
    return alt.layer(
        zero, bars, base.mark_point(filled=True, size=50, opacity=1).encode(x=x, y=y, yOffset=offset, color=colour)
    )
