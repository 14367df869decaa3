"""Change with each replacement by model; constancy of heads."""

import altair as alt
import numpy as np

from lorgnette.figures.charts import COLOURS
from reproductions.cancellation_by_layer.measure import MIDDLE
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.frame.statistics import mean_of
from reproductions.sink_as_bias.grid import SINKS, USUAL
from reproductions.sink_as_bias.measure import REPLACEMENTS
from reproductions.sink_as_bias.readings import KINDS, Readings
from reproductions.sink_as_bias.tables import NAMES

_LEAST = 0.005


def figures(cells: Finished) -> list[Figure]:
    r = Readings(cells)
    return [_changes(r), _constancy(r)]


def _cases(r: Readings) -> list[tuple[str, str, str]]:
    return [(m, kind, f"{m}, {KINDS[kind]}") for m in r.models for kind in (*SINKS[m], MIDDLE)]


def _changes(r: Readings) -> Figure:
    rows, names = [], [NAMES[how] for how in REPLACEMENTS]
    for model, kind, said in _cases(r):
        for how in REPLACEMENTS:
            one = mean_of(np.log(r.cell(model)["change"].sel(kind=kind, replacement=how)))
            low, high = one.interval or (one.value, one.value)
            ends = {"value": float(np.exp(one.value)), "low": float(np.exp(low)), "high": float(np.exp(high))}
            rows.append({"case": said, "with": NAMES[how], **ends})
    order = [said for _, _, said in _cases(r)]
    colour = alt.Color("with:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), sort=names,
                       title="in place of the value", legend=alt.Legend(labelLimit=240))  # fmt: skip
    base = alt.Chart(alt.Data(values=rows), width=380, height=alt.Step(9))
    y = alt.Y("case:N", sort=order, title=None, axis=alt.Axis(labelLimit=240))
    offset = alt.YOffset("with:N", sort=names)
    scale = alt.Scale(type="log", domain=[_LEAST, 1], nice=False)
    x = alt.X(
        "value:Q",
        title="change of the states, ‖h′ − h‖/‖h‖",
        scale=scale,
        axis=alt.Axis(format="~g", values=[0.01, 0.03, 0.1, 0.3, 1]),
    )
    dots = base.mark_circle(size=40, opacity=1).encode(x=x, y=y, yOffset=offset, color=colour)
    bars = base.mark_rule().encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, yOffset=offset, color=colour)
    caption = (
        "How far the final states of the words behind the middle move if one token's value is replaced in all heads "
        f"and layers (logarithmic). Texts of {USUAL} tokens; geometric means and 95 % intervals over "
        "blocks of documents."
    )
    return Figure("changes", alt.layer(bars, dots), caption)


def _constancy(r: Readings) -> Figure:
    charts, names = [], list(dict.fromkeys(KINDS[kind] for m in r.models for kind in (*SINKS[m], MIDDLE)))
    colour = alt.Color("token:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    for model in r.models:
        rows = [
            {"token": KINDS[kind], "layer": layer, "value": float(value)}
            for kind in (*SINKS[model], MIDDLE)
            for layer, heads in zip(r.cell(model)["layer"].to_numpy().tolist(),
                                    r.cell(model)["constancy"].sel(kind=kind).to_numpy(), strict=True)
            for value in [np.nanmean(heads) if not np.isnan(heads).all() else np.nan]
            if not np.isnan(value)
        ]  # fmt: skip
        y = alt.Y("value:Q", title="same in every text", scale=alt.Scale(domain=[0, 1]))
        x = alt.X("layer:O", axis=alt.Axis(labelAngle=0, labelOverlap=True))
        base = alt.Chart(alt.Data(values=rows), width=180, height=150, title=model)
        charts.append(base.mark_line(point=True).encode(x=x, y=y, color=colour))
    caption = (
        "How constant a token's vector is: ‖mean over texts‖² / mean ‖·‖² of its transformed value minus the head's "
        "mean over all tokens, mean over the heads of a layer. 1: the same vector in every text."
    )
    return Figure("constancy", alt.concat(*charts, columns=3), caption)
