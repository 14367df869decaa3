"""Every signal on every stack: one head at a time, and half of the heads together."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.which_signal.readings import Readings, title, words


def figures(cells: Finished) -> list[Figure]:
    readings = Readings(cells)
    single = (
        "Rank correlation of each signal with the loss without each head. A dot is a stack of a model, the tick the "
        "mean over models."
    )
    joint = (
        "Share of the damage of random sets that each signal avoids when half of the heads go together. 0: no better "
        "than chance. The axis is linear near 0 and logarithmic far from it."
    )
    return [
        Figure("single", _dots(readings, readings.rho, "Spearman's ρ"), single),
        Figure("joint", _dots(readings, readings.saved, "damage avoided", _WIDE), joint),
    ]


_WIDE = {
    "scale": alt.Scale(type="symlog", constant=0.5, domain=[-4, 1]),
    "axis": alt.Axis(values=[-3, -2, -1, -0.5, 0, 0.25, 0.5, 0.75, 1], format="~g"),
}
"""A share of the damage avoided is at most 1, and some signals do three times the damage of random sets."""


def _dots(readings: Readings, read: Any, name: str, wide: dict[str, Any] | None = None) -> Any:
    rows = []
    for place, stack in readings.every():
        for signal in readings.signals:
            value = read(place, stack, signal)
            if value is not None:
                rows.append({"signal": words(signal), "model": place.name, "stack": title(stack), "value": value})
    means = {
        words(signal): [value for value in readings.of_places(read, signal) if value is not None]
        for signal in readings.signals
    }
    level = {signal: sum(values) / len(values) for signal, values in means.items() if values}
    order = sorted(level, key=lambda signal: -level[signal])
    models = list(dict.fromkeys(row["model"] for row in rows))
    y = alt.Y("signal:N", sort=order, title=None)
    dots = alt.Chart(alt.Data(values=rows), width=460, height=alt.Step(22)).mark_point(
        filled=True, size=55, opacity=0.8
    )
    dots = dots.encode(
        x=alt.X("value:Q", title=name, **(wide or {})),
        y=y,
        color=alt.Color("model:N", scale=alt.Scale(domain=models, range=list(COLOURS[: len(models)])), title=None),
        shape=alt.Shape("stack:N", title=None),
    )
    ticks = [{"signal": signal, "value": value} for signal, value in level.items()]
    middle = alt.Chart(alt.Data(values=ticks)).mark_tick(color="black", thickness=2, size=16).encode(x="value:Q", y=y)
    zero = alt.Chart(alt.Data(values=[{"value": 0}])).mark_rule(color="grey", strokeDash=[4, 4]).encode(x="value:Q")
    return alt.layer(zero, dots, middle)
