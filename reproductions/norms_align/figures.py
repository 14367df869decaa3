"""AER of layers by measure; the best of every way of reading, held out."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.norms_align.claims import SAID, TARGET
from reproductions.norms_align.readings import MEASURES, READINGS, RULE_NAMES, WAYS, Readings, one_rate

NAMES = {"weights": "weights α", "norms": "norms ‖αf(x)‖", "centred": "norms, centred"}


def figures(cells: Finished) -> list[Figure]:
    r = Readings(cells)
    return [_ways(r), _layers(r)]


def _colour() -> alt.Color:
    names = [NAMES[measure] for measure in MEASURES]
    return alt.Color("by:N", scale=alt.Scale(domain=names, range=list(COLOURS[:3])), sort=names, title=None)


def _ways(r: Readings) -> Figure:
    charts = []
    order = [f"{SAID[reading]}: {RULE_NAMES[rule]}" for reading, rule in WAYS]
    for number, direction in enumerate(r.directions):
        rows = []
        for (reading, rule), said in zip(WAYS, order, strict=True):
            for measure in MEASURES:
                one = one_rate(r.held_out(direction, "heads", measure, [(reading, rule)]))
                rows.append({"way": said, "by": NAMES[measure], "aer": one.value, "low": one.low, "high": one.high})
        base = alt.Chart(alt.Data(values=rows), width=220, height=alt.Step(9), title=direction)
        place: dict[str, Any] = {
            "y": alt.Y(
                "way:N", sort=order, title=None, axis=alt.Axis(labelLimit=420, labels=not number, ticks=not number)
            ),
            "yOffset": alt.YOffset("by:N", sort=[NAMES[measure] for measure in MEASURES]),
        }
        bars = base.mark_rule().encode(alt.X("low:Q", title="AER of the best head, held out"), alt.X2("high:Q"),
                                       color=_colour(), **place)  # fmt: skip
        dots = base.mark_circle(size=40, opacity=1).encode(x="aer:Q", color=_colour(), **place)
        charts.append(alt.layer(bars, dots))
    caption = (
        "Alignment error rate of the best head for every way of reading an alignment, chosen on one half of the "
        "sentences and judged on the other. Lower is better. Bars: 95 % intervals over blocks of pairs."
    )
    return Figure("ways", alt.hconcat(*charts).resolve_scale(x="shared"), caption)


def _layers(r: Readings) -> Figure:
    names = [NAMES[measure] for measure in MEASURES]
    dashes = alt.StrokeDash("by:N", scale=alt.Scale(domain=names, range=[[1, 0], [1, 0], [3, 5]]), title=None)
    charts = []
    for direction in r.directions:
        for reading in READINGS:
            rows = [
                {"layer": layer, "by": NAMES[measure], "aer": rate}
                for measure in MEASURES
                for layer, rate in enumerate(r.rates(direction, "layers", measure, (reading, TARGET)).tolist(), 1)
            ]
            base = alt.Chart(alt.Data(values=rows), width=170, height=160, title=[direction, SAID[reading]])
            y = alt.Y("aer:Q", title="AER", scale=alt.Scale(domain=[0, 1]))
            charts.append(base.mark_line(point=True).encode(x=alt.X("layer:O", axis=alt.Axis(labelAngle=0)), y=y,
                                                            color=_colour(), strokeDash=dashes))  # fmt: skip
    caption = (
        "Alignment error rate of each layer, all heads together, on all pairs: a source word for each target word. "
        "Both kinds of norms nearly coincide."
    )
    return Figure("layers", alt.hconcat(*charts), caption)
