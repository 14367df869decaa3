"""Weight by kind of token and layer, every head a dot; entropy of heads; the map of heads."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS, KIND_COLOURS
from reproductions.clark2019.tables import NAMES, mass
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import Found, array
from reproductions.frame.record import Figure

SHOWN = (TRAINED, SHUFFLED, RANDOM)
_LEGEND = alt.Legend(title=None, symbolOpacity=1)
_MAP_NAMES = {**NAMES, "previous": "previous token", "next": "next token", "self": "itself", "broad": "broad"}


def figures(found: Found) -> list[Figure]:
    maps = [head_map(model, cells) for model, cells in found.items()]
    return [weights(found), entropy(found), *(figure for figure in maps if figure is not None)]


def weights(found: Found) -> Figure:
    names = list(NAMES.values())
    scale = alt.Scale(domain=names, range=[KIND_COLOURS[kind] for kind in NAMES])
    charts = []
    for model, condition, cell in _shown(found):
        rows, means = [], []
        for kind, name in NAMES.items():
            for layer, heads in enumerate(mass(cell, kind).mean(0), 1):
                rows += [{"layer": layer, "kind": name, "share": float(share)} for share in heads]
                means.append({"layer": layer, "kind": name, "share": float(heads.mean())})
        charts.append(_dots_and_lines(rows, means, scale).properties(title=f"{model}, {condition}"))
    return Figure(
        "weight-by-kind",
        alt.concat(*charts, columns=len(SHOWN)).resolve_scale(y="shared", x="independent"),
        "Share of the weight by kind of token: a dot is a head, a line the mean of a layer.",
    )


def _shown(found: Found) -> list[tuple[str, str, Any]]:
    return [(model, c, cells[c]) for model, cells in found.items() for c in SHOWN if c in cells]


def _dots_and_lines(rows: list[dict[str, Any]], means: list[dict[str, Any]], scale: Any) -> Any:
    x = alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0))
    y = alt.Y(field="share", type="quantitative", title="share of the weight")
    colour = alt.Color(field="kind", type="nominal", scale=scale, legend=_LEGEND)
    dots = alt.Chart(alt.Data(values=rows), width=200, height=170).mark_point(filled=True, size=12, opacity=0.3)
    line = alt.Chart(alt.Data(values=means)).mark_line(strokeWidth=2)
    return alt.layer(dots.encode(x=x, y=y, color=colour), line.encode(x=x, y=y, color=colour))


def entropy(found: Found) -> Figure:
    charts = []
    for model, condition, cell in _shown(found):
        heads = array(cell["by_block"]["entropy"]).mean(0)
        first = array(cell["by_block"]["cls_entropy"]).mean(0)
        rows = [
            {"layer": layer + 1, "nats": float(nats), "row": name}
            for name, values in (("all rows", heads), ("the row of [CLS]", first))
            for layer in range(len(values))
            for nats in values[layer]
        ]
        chart = alt.Chart(alt.Data(values=rows), width=200, height=170).mark_point(filled=True, size=14, opacity=0.5)
        charts.append(
            chart.encode(
                x=alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0)),
                y=alt.Y(field="nats", type="quantitative", title="entropy in nats"),
                xOffset=alt.XOffset(field="row", type="nominal"),
                color=alt.Color(
                    field="row",
                    type="nominal",
                    legend=_LEGEND,
                    scale=alt.Scale(domain=["all rows", "the row of [CLS]"], range=list(COLOURS[:2])),
                ),
            ).properties(title=f"{model}, {condition}")
        )
    return Figure(
        "entropy",
        alt.concat(*charts, columns=len(SHOWN)).resolve_scale(y="shared", x="independent"),
        "Entropy of heads, mean over all rows and of the row of [CLS]; a dot is a head.",
    )


def head_map(model: str, cells: Any) -> Figure | None:
    """Heads near each other attend alike; colours say to what."""
    here = [(c, cells[c]["distances"]) for c in SHOWN if c in cells and cells[c]["distances"] is not None]
    if not here:
        return None
    kinds = [*KIND_COLOURS]
    scale = alt.Scale(
        domain=[_said(kind) for kind in kinds],
        range=[KIND_COLOURS[kind] for kind in kinds],
    )
    charts = []
    for condition, found in here:
        rows = [
            {"x": x, "y": y, "kind": _said(kind), "name": f"{layer + 1}-{head + 1}", "layer": layer + 1}
            for layer in range(len(found["x"]))
            for head, (x, y, kind) in enumerate(
                zip(found["x"][layer], found["y"][layer], found["kind"][layer], strict=True)
            )
        ]
        charts.append(_map(rows, scale).properties(title=f"{condition} (stress {found['stress']:.2f})"))
    return Figure(
        f"head-map-{model}",
        alt.hconcat(*charts).resolve_scale(x="independent", y="independent"),
        f"{model}: heads by the Jensen–Shannon divergence of their rows, in two dimensions; the number is the layer. A "
        "kind needs more than .5 on a neighbour, more than .6 on a kind of token, or more than 3.8 nats (broad).",
    )


def _said(kind: str) -> str:
    return _MAP_NAMES[kind] if kind != "other" else "none of these"


def _map(rows: list[dict[str, Any]], scale: Any) -> Any:
    base = alt.Chart(alt.Data(values=rows), width=340, height=300)
    x = alt.X(field="x", type="quantitative", axis=None)
    y = alt.Y(field="y", type="quantitative", axis=None)
    colour = alt.Color(field="kind", type="nominal", scale=scale, legend=_LEGEND)
    dots = base.mark_point(filled=True, size=190, opacity=0.55).encode(x=x, y=y, color=colour)
    return alt.layer(
        dots, base.mark_text(fontSize=9).encode(x=x, y=y, text=alt.Text(field="layer", type="quantitative"))
    )
