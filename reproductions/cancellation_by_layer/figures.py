"""ρ by length at three levels; the parts of the pooled ρ; layers as points; change against weight and norm."""

from typing import Any

import altair as alt
import numpy as np

from lorgnette.figures.charts import COLOURS
from reproductions.cancellation_by_layer.grid import CENTRED, LENGTHS, SINKS, USUAL
from reproductions.cancellation_by_layer.measure import MIDDLE, PUNCTUATION
from reproductions.cancellation_by_layer.readings import KIND_NAMES, Readings
from reproductions.cancellation_by_layer.tables import LEVEL_NAMES, PART_NAMES
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.frame.statistics import mean_of

_COLUMNS = 3


def figures(cells: Finished) -> list[Figure]:
    readings = Readings(cells)
    replaced = [_zeroed(readings)] if readings.centred_models else []
    return [_parts(readings), _layers(readings), _lengths(readings), *replaced]


def _cases(r: Readings, *, punctuation: bool = False) -> list[tuple[str, str, str]]:
    """Model, kind of token and the words for both."""
    return [
        (model, kind, f"{model}, {KIND_NAMES[kind]}")
        for model in r.models
        for kind in (*SINKS[model], *((PUNCTUATION,) if punctuation else ()))
    ]


def _parts(r: Readings) -> Figure:
    """The parts of the pooled ρ, as it is, without the constant, and relative to other words."""
    panels: list[tuple[str, int | str, str]] = [("raw ‖f(x)‖", USUAL, "norm")]
    if r.centred_models:
        panels += [("minus the head's mean", CENTRED, "norm")]
        panels += [("… relative to words in the head", CENTRED, "relative")]
    y = alt.Y("case:N", sort=[said for _, _, said in _cases(r, punctuation=True)], title=None)
    names = list(PART_NAMES.values())
    charts = []
    for place, (title, length, measure) in enumerate(panels):
        bars, points = [], []
        for model, kind, said in _cases(r, punctuation=True):
            if length == CENTRED and model not in r.centred_models:
                continue
            one = r.cell(model, length).sel(kind=kind, measure=measure).mean("block")
            bars += [
                {"case": said, "part": name, "value": float(one[p]), "order": k}
                for k, (p, name) in enumerate(PART_NAMES.items())
            ]
            points.append({"case": said, "value": float(one["pooled"])})
        axis = alt.Axis(labelLimit=240, labels=not place, ticks=not place)
        bar = alt.Chart(alt.Data(values=bars), width=190, title=title).mark_bar().encode(
            x=alt.X("value:Q", title="part of the pooled ρ"), y=y.axis(axis), order="order:O",
            color=alt.Color("part:N", scale=alt.Scale(domain=names, range=list(COLOURS[:3])), title=None, sort=names),
        )  # fmt: skip
        dots = alt.Chart(alt.Data(values=points)).mark_point(filled=True, color="black", shape="diamond", size=50)
        charts.append(alt.layer(bar, dots.encode(x="value:Q", y=y.axis(axis))))
    caption = (
        f"The pooled ρ(α, ‖f(x)‖) (black diamond) and its three parts, which sum to it. Texts of {USUAL} tokens. Left: "
        "raw norms. Middle: of values minus the mean of their head, which no free constant moves. Right: these, "
        "relative to those of other words in the same head and text."
    )
    return Figure("parts", alt.hconcat(*charts).resolve_scale(x="shared", color="shared"), caption)


def _layers(r: Readings) -> Figure:
    charts = []
    for model, kind, said in _cases(r):
        cell = r.cell(model, CENTRED if model in r.centred_models else USUAL).sel(kind=kind).mean("block")
        rows = [
            {"layer": int(n), "weight": float(w), "norm": float(f)}
            for n, w, f in zip(cell["layer"], cell["weight_by_layer"], cell["relative_by_layer"], strict=True)
        ]
        base = alt.Chart(alt.Data(values=rows), width=200, height=150, title=said)
        x = alt.X("weight:Q", title="mean weight α", scale=alt.Scale(zero=True))
        y = alt.Y("norm:Q", title="length, over that of words")
        path = base.mark_line(color="lightgrey", strokeWidth=1).encode(x=x, y=y, order="layer:O")
        colour = alt.Color("layer:Q", scale=alt.Scale(scheme="viridis"), title="layer", legend=alt.Legend(format="d"))
        charts.append(alt.layer(path, base.mark_circle(size=60, opacity=1).encode(x=x, y=y, color=colour)))
    caption = (
        "Every layer of a model as a point: the mean weight of its sink, and the mean length of the sink's transformed "
        "value minus the head's mean, relative to that of words in the same head, over heads and texts of "
        f"{USUAL} tokens. The grey line goes from layer to layer."
    )
    return Figure("layers", _grid(charts).resolve_scale(color="independent"), caption)


def _lengths(r: Readings) -> Figure:
    names = list(LEVEL_NAMES.values())
    colour = alt.Color("level:N", scale=alt.Scale(domain=names, range=list(COLOURS[:3])), sort=names, title=None)
    charts = []
    for model, kind, said in _cases(r):
        rows = []
        for length in (n for n in LENGTHS if r.cells.of(model=model, length=n)):
            for name, level in LEVEL_NAMES.items():
                one = mean_of(r.cell(model, length)[name].sel(kind=kind, measure="norm"))
                rows.append({"tokens": length, "level": level, "mean": one.value, "low": one.low, "high": one.high})
        base = alt.Chart(alt.Data(values=rows), width=200, height=150, title=said)
        x = alt.X("tokens:O", title="tokens of a text", axis=alt.Axis(labelAngle=0))
        scale = alt.Scale(domain=[-1, 1])
        line = base.mark_line(point=True).encode(
            x=x, y=alt.Y("mean:Q", title="ρ(α, ‖f(x)‖)", scale=scale), color=colour
        )
        bars = base.mark_rule().encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=colour)
        zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(color="grey", strokeDash=[4, 4]).encode(y="y:Q")
        charts.append(alt.layer(zero, bars, line))
    caption = (
        "ρ of weight and norm of each sink, by the length of the text: all pairs pooled, and means of the ρ within "
        "layers and within heads. Bars: 95 % intervals over blocks of documents."
    )
    return Figure("lengths", _grid(charts), caption)


_SAID = {"sent_weight": "weight α", "sent_norm": "share of the norm ‖α f(x)‖"}


def _ratios(r: Readings) -> list[dict[str, Any]]:
    """Numbers of a replaced token over those of the middle word: y the change, x what weight or norm say."""
    rows = []
    for model, kind, _ in _cases(r, punctuation=True):
        if model not in r.centred_models:
            continue
        cell = np.log(r.cell(model, CENTRED)[["change", *_SAID]])
        one = np.exp((cell.sel(target=kind) - cell.sel(target=MIDDLE)).mean("block"))
        where = {"model": model, "token": KIND_NAMES[kind], "y": float(one["change"])}
        rows += [where | {"said": said, "x": float(one[name])} for name, said in _SAID.items()]
    return [row for row in rows if np.isfinite(row["x"]) and np.isfinite(row["y"])]


def _zeroed(r: Readings) -> Figure:
    rows = _ratios(r)
    ends = [min(min(row["x"], row["y"]) for row in rows), max(max(row["x"], row["y"]) for row in rows)]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    axis = alt.Axis(values=[0.3, 1, 3, 10, 30], format="~g")
    charts = []
    for said in _SAID.values():
        base = alt.Chart(alt.Data(values=[row for row in rows if row["said"] == said]), width=280, height=280)
        dots = base.mark_point(filled=True, size=50, opacity=0.8).encode(
            x=alt.X("x:Q", title=f"{said}, over that of a middle word", scale=scale, axis=axis),
            y=alt.Y("y:Q", title="change of states, over that of a middle word", scale=scale, axis=axis),
            color=alt.Color(
                "model:N", scale=alt.Scale(domain=r.models, range=list(COLOURS[: len(r.models)])), title=None
            ),
            shape=alt.Shape("token:N", title=None),
        )
        line = alt.Chart(alt.Data(values=[{"x": end, "y": end} for end in ends])).mark_line(
            color="grey", strokeDash=[4, 4]
        )
        charts.append(alt.layer(line.encode(x="x:Q", y="y:Q"), dots))
    caption = (
        "How far the final states move when a token's value is replaced by the head's mean, against its weight (left) "
        "and its centred norm (right), all relative to a middle word. A point is a kind of token in a model, texts of "
        f"{USUAL} tokens. On the dashed line, the number predicts the change."
    )
    return Figure("replaced", alt.hconcat(*charts), caption)


def _grid(charts: list[Any]) -> Any:
    rows = [charts[start : start + _COLUMNS] for start in range(0, len(charts), _COLUMNS)]
    return alt.vconcat(*(alt.hconcat(*row) for row in rows))
