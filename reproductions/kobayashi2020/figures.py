"""The papers' two pictures of attention side by side, mixing ratios by layer, and the correlations with intervals."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS, KIND_COLOURS
from lorgnette.lenses.norms.lens import RATIOS
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import Found, array, interval
from reproductions.frame.record import Figure
from reproductions.kobayashi2020.cell import KINDS
from reproductions.kobayashi2020.tables import NAMES, RATIO_NAMES

SHOWN = (TRAINED, SHUFFLED, RANDOM)
_CONDITION_COLOURS = dict(
    zip((TRAINED, SHUFFLED, RANDOM, "published, BERT"), (*COLOURS[:2], "#9A9A9A", "black"), strict=True)
)


def figures(found: Found, spearman: dict[str, float]) -> list[Figure]:
    out = [weights_and_norms(model, found) for model in found]
    return [*out, mixing(found), cancelling(found, spearman)]


def weights_and_norms(model: str, found: Found) -> Figure:
    """Above the weights, below the norms, by layer; a column for each condition."""
    shown = [condition for condition in SHOWN if condition in found[model]]
    rows = [
        alt.hconcat(*(_kinds_by_layer(found[model][c], measure, title, c) for c in shown)).resolve_scale(
            y="shared" if measure == "weight" else "independent"
        )
        for measure, title in (("weight", "weight Σ α"), ("norm", "norm Σ ||α f(x)||"))
    ]
    return Figure(
        f"weights-and-norms-{model}",
        alt.vconcat(*rows),
        f"{model}: by kind of token and layer, mean over heads, what the weights say (above) and what arrives (below). "
        "Bands are 95 % intervals over blocks of segments. The norms have a scale of their own in each column: random "
        "weights make small vectors.",
    )


def _kinds_by_layer(cell: Any, measure: str, title: str, condition: str) -> Any:
    blocks = array(cell["by_block"][measure])
    rows = []
    for k, kind in enumerate(KINDS):
        for layer in range(blocks.shape[1]):
            mean, low, high = interval(blocks[:, layer, k])
            rows.append({"layer": layer + 1, "kind": NAMES[kind], "mean": mean, "low": low, "high": high})
    names = [NAMES[kind] for kind in KINDS]
    scale = alt.Scale(domain=names, range=[KIND_COLOURS[kind] for kind in KINDS])
    return _lines(rows, "kind", scale, title).properties(title=condition if measure == "weight" else "")


def _lines(rows: list[dict[str, Any]], series: str, scale: Any, title: str) -> Any:
    base = alt.Chart(alt.Data(values=rows), width=200, height=150)
    x = alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0))
    colour = alt.Color(field=series, type="nominal", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1))
    y = alt.Y(field="mean", type="quantitative", title=title)
    band = base.mark_area(opacity=0.2).encode(
        x=x, y=alt.Y(field="low", type="quantitative", title=title), y2=alt.Y2(field="high"), color=colour
    )
    return alt.layer(band, base.mark_line(point=True).encode(x=x, y=y, color=colour))


def mixing(found: Found) -> Figure:
    """The five ratios by layer."""
    names = [RATIO_NAMES[name] for name in RATIOS]
    scale = alt.Scale(domain=names, range=list(COLOURS[:5]))
    charts = []
    for model, cells in found.items():
        for condition in SHOWN:
            if condition not in cells:
                continue
            blocks = array(cells[condition]["by_block"]["mixing"])
            rows = []
            for r, name in enumerate(names):
                for layer in range(blocks.shape[1]):
                    mean, low, high = interval(blocks[:, layer, r])
                    rows.append({"layer": layer + 1, "ratio": name, "mean": mean, "low": low, "high": high})
            chart = _lines(rows, "ratio", scale, "mixing ratio").properties(title=f"{model}, {condition}")
            charts.append(chart)
    drawn = alt.concat(*charts, columns=len(SHOWN)).resolve_scale(y="shared", x="independent")
    return Figure(
        "mixing-ratios",
        drawn,
        "How much of a token's new vector comes from other tokens: by weights, by norms, with the residual, and with "
        "LayerNorm.",
    )


def cancelling(found: Found, spearman: dict[str, float]) -> Figure:
    """ρ of α with ‖f(x)‖ by kind of token: models, controls, and the published numbers."""
    charts = []
    for model, cells in found.items():
        rows = [
            {"kind": NAMES[kind], "what": "published, BERT", "mean": spearman[kind], "low": None, "high": None}
            for kind in KINDS
        ]
        for condition in (c for c in SHOWN if c in cells):
            blocks = array(cells[condition]["by_block"]["spearman_all"])
            for k, kind in enumerate(KINDS):
                mean, low, high = interval(blocks[:, k])
                rows.append({"kind": NAMES[kind], "what": condition, "mean": mean, "low": low, "high": high})
        charts.append(_dots(rows).properties(title=model if model != PUBLISHED_MODEL else f"{model} (the papers' own)"))
    return Figure(
        "cancelling",
        alt.hconcat(*charts).resolve_scale(x="shared"),
        "Spearman of α with ‖f(x)‖ by kind of token. Left of zero the two cancel: what gets weight has a short vector. "
        "Bars are 95 % intervals over blocks of segments, mostly narrower than the dots.",
    )


def _dots(rows: list[dict[str, Any]]) -> Any:
    base = alt.Chart(alt.Data(values=rows), width=230, height=220)
    order = [NAMES[kind] for kind in KINDS]
    names = list(_CONDITION_COLOURS)
    y = alt.Y(field="kind", type="nominal", sort=order, title=None)
    offset = alt.YOffset(field="what", type="nominal", sort=names)
    scale = alt.Scale(domain=names, range=list(_CONDITION_COLOURS.values()))
    colour = alt.Color(field="what", type="nominal", scale=scale, title=None)
    x = alt.X(field="mean", type="quantitative", title="Spearman of α with ||f(x)||")
    low = alt.X(field="low", type="quantitative", title="Spearman of α with ||f(x)||")
    bars = base.mark_rule().encode(x=low, x2=alt.X2(field="high"), y=y, yOffset=offset, color=colour)
    zero = (
        alt.Chart(alt.Data(values=[{"at": 0}])).mark_rule(opacity=0.4).encode(x=alt.X(field="at", type="quantitative"))
    )
    return alt.layer(
        zero, bars, base.mark_point(filled=True, size=50, opacity=1).encode(x=x, y=y, yOffset=offset, color=colour)
    )
