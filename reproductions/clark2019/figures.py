"""Weight by category of token and layer, every head a dot; entropy of heads; the map of heads; relations."""

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import numpy as np
import xarray as xr

from lorgnette.figures.charts import COLOURS, KIND_COLOURS
from reproductions.clark2019 import surface, syntax
from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.surface import NAMES
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure, published

SHOWN = (TRAINED, SHUFFLED, RANDOM)
Row = dict[str, Any]
_LEGEND = alt.Legend(title=None, symbolOpacity=1)
_KINDS = {**NAMES, "previous": "previous token", "next": "next token", "self": "itself", "other": "none of these"}
_LAYER = alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0))


def figures(cells: Finished) -> Iterator[Figure]:
    every = surface.models(cells)
    shown = [(f"{model}, {c}", found[c]) for model, found in every.items() for c in SHOWN if c in found]
    if shown:
        caption = "Share of the weight by category of token: a dot is a head, a line the mean of a layer."
        yield Figure("weight-by-kind", _grid([_weights(data).properties(title=t) for t, data in shown]), caption)
        caption = "Entropy of heads, mean over all rows and of the row of [CLS]; a dot is a head."
        yield Figure("entropy", _grid([_entropy(data).properties(title=t) for t, data in shown]), caption)
    for model, conditions in every.items():
        maps = {c: conditions[c] for c in SHOWN if c in conditions and "x" in conditions[c]}
        if maps:
            yield _head_map(model, maps)
    printed = published("clark2019")["numbers"]["relations"]["value"]
    for model, conditions in surface.models(cells, "relations").items():
        yield _relations(model, conditions, printed)


def _grid(charts: list[Any]) -> Any:
    return alt.concat(*charts, columns=len(SHOWN)).resolve_scale(y="shared", x="independent")


def _colour(field: str, names: list[str], colours: list[str]) -> alt.Color:
    return alt.Color(field=field, type="nominal", scale=alt.Scale(domain=names, range=colours), legend=_LEGEND)


def _by_head(values: Any, **where: Any) -> list[Row]:
    """A row for each head: its layer and number, and the value."""
    return [{"layer": layer + 1, **where, "value": float(x)} for (layer, _), x in np.ndenumerate(values)]


def _weights(data: xr.Dataset) -> Any:
    heads, means = [], []
    for kind, name in NAMES.items():
        values = data["mass"].sel(category=kind).values
        heads += _by_head(values, kind=name)
        means += _by_head(values.mean(1, keepdims=True), kind=name)
    y = alt.Y(field="value", type="quantitative", title="share of the weight")
    colour = _colour("kind", list(NAMES.values()), [KIND_COLOURS[kind] for kind in NAMES])
    dots = alt.Chart(alt.Data(values=heads), width=200, height=170).mark_point(filled=True, size=12, opacity=0.3)
    line = alt.Chart(alt.Data(values=means)).mark_line(strokeWidth=2)
    return alt.layer(dots.encode(x=_LAYER, y=y, color=colour), line.encode(x=_LAYER, y=y, color=colour))


def _entropy(data: xr.Dataset) -> Any:
    names = {"all rows": "entropy", "the row of [CLS]": "cls_entropy"}
    rows = [row for name, variable in names.items() for row in _by_head(data[variable].values, row=name)]
    chart = alt.Chart(alt.Data(values=rows), width=200, height=170).mark_point(filled=True, size=14, opacity=0.5)
    return chart.encode(
        x=_LAYER,
        y=alt.Y(field="value", type="quantitative", title="entropy in nats"),
        xOffset=alt.XOffset(field="row", type="nominal"),
        color=_colour("row", list(names), list(COLOURS[:2])),
    )


def _head_map(model: str, maps: Mapping[str, xr.Dataset]) -> Figure:
    """Heads near each other attend alike; colours say to what."""
    names = [_KINDS.get(kind, kind) for kind in KIND_COLOURS]
    colour = _colour("kind", names, list(KIND_COLOURS.values()))
    x, y = (alt.X(field="x", type="quantitative", axis=None), alt.Y(field="y", type="quantitative", axis=None))
    charts = []
    for condition, data in maps.items():
        kinds = [_KINDS.get(kind, kind) for kind in data["kind"].values.ravel().tolist()]
        places = zip(_by_head(data["x"].values), data["y"].values.ravel().tolist(), kinds, strict=True)
        rows = [{"layer": head["layer"], "x": head["value"], "y": y_, "kind": kind} for head, y_, kind in places]
        base = alt.Chart(alt.Data(values=rows), width=340, height=300)
        dots = base.mark_point(filled=True, size=190, opacity=0.55).encode(x=x, y=y, color=colour)
        text = base.mark_text(fontSize=9).encode(x=x, y=y, text=alt.Text(field="layer", type="quantitative"))
        charts.append(alt.layer(dots, text).properties(title=f"{condition} (stress {float(data['stress']):.2f})"))
    caption = (
        f"{model}: heads by the Jensen–Shannon divergence of their rows, in two dimensions; the number is the layer. A "
        "kind needs more than .5 on a neighbour, more than .6 on a kind of token, or more than 3.8 nats (broad)."
    )
    chart = alt.hconcat(*charts).resolve_scale(x="independent", y="independent")
    return Figure(f"head-map-{model}", chart, caption)


_OFFSET, _PUBLISHED = "best offset", "published, BERT"
_SERIES = {
    TRAINED: COLOURS[0],
    _OFFSET: COLOURS[3],
    SHUFFLED: COLOURS[1],
    RANDOM: COLOURS[-1],
    _PUBLISHED: "black",
}


def _relations(model: str, conditions: Mapping[str, xr.Dataset], printed: Mapping[str, Any]) -> Figure:
    dots, bars = [], []
    for name, one in STANFORD_TO_UD.items():
        rows = {c: row for c, data in conditions.items() if (row := syntax.best(data, name)) is not None}
        if TRAINED not in rows:
            continue
        label = f"{one.relation} ({name})" if one.relation != name else name
        shares = {c: row["accuracy"] for c, row in rows.items()} | {_OFFSET: rows[TRAINED]["baseline"]}
        shares |= {_PUBLISHED: printed[name]["accuracy"]} if name in printed else {}
        dots += [{"relation": label, "of": of, "share": share} for of, share in shares.items()]
        ends = {end: rows[TRAINED][end] for end in ("low", "high")}
        bars.append({"relation": label, "of": TRAINED, **ends})
    colour = _colour("of", list(_SERIES), list(_SERIES.values()))
    shape = alt.Shape(field="of", type="nominal", title=None, scale=alt.Scale(domain=list(_SERIES)))
    y = alt.Y(field="relation", type="nominal", sort=None, title=None)
    axis = {"title": "share of pairs found", "scale": alt.Scale(domain=[0, 1])}
    low, share = (alt.X(field=field, type="quantitative", **axis) for field in ("low", "share"))
    base = alt.Chart(alt.Data(values=dots), width=420, height=alt.Step(20)).mark_point(filled=True, size=55)
    rule = alt.Chart(alt.Data(values=bars)).mark_rule(strokeWidth=3, opacity=0.35)
    chart = alt.layer(
        rule.encode(y=y, x=low, x2=alt.X2(field="high"), color=colour),
        base.encode(y=y, x=share, color=colour, shape=shape),
    )
    caption = (
        f"{model} on UD_English-EWT: share of each relation's pairs that the best head finds, chosen on one half of "
        "the sentences and tested on the other (bars: 95 %), beside the best fixed offset and the controls, which "
        "choose their own heads; and what the paper prints for BERT on another treebank and scheme."
    )
    return Figure(f"relations-{model}", chart, caption)
