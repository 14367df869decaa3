"""BLEU of every way to choose the heads that remain, beside random sets."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.frame.statistics import mean_of
from reproductions.heavy_lifting.readings import ARMS, SHARES, Readings


def figures(cells: Finished) -> list[Figure]:
    readings = Readings(cells)
    caption = (
        "BLEU with a third and with a sixth of the heads, less that of the whole model, equal steps for all. The point "
        "is the mean over seeds, the bar its 95 % interval, the small dots are seeds; a grey dot is one random set."
    )
    charts = [_bleu(readings, left) for left in readings.left]
    return [Figure("bleu", alt.vconcat(*charts).resolve_scale(x="shared"), caption)]


def _bleu(readings: Readings, left: int) -> Any:
    whole = readings.whole()
    means: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    for name, title in ARMS.items():
        gaps = [value - whole[seed] for seed, value in readings.arm(name, left).items() if seed in whole]
        dots += [{"way": title, "change": gap} for gap in gaps]
        one = mean_of(gaps)
        if one.interval is not None:
            means.append({"way": title, "change": one.value, "low": one.low, "high": one.high})
    sets = [
        {"way": ARMS["random"], "change": value - whole[seed]}
        for seed, values in readings.draws(left).items()
        for value in values
        if seed in whole
    ]
    title = "BLEU less that of the whole model"
    x, y = alt.X("change:Q", title=title), alt.Y("way:N", sort=list(ARMS.values()), title=None)
    base = alt.Chart(alt.Data(values=means), width=440, height=170, title=f"{SHARES[left]} of the heads ({left})")
    bars = base.mark_rule(color=COLOURS[0]).encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y)
    points = base.mark_point(filled=True, size=60, opacity=1, color=COLOURS[0]).encode(x=x, y=y)
    grey = alt.Chart(alt.Data(values=sets)).mark_circle(size=22, opacity=0.4, color="grey").encode(x=x, y=y)
    seeds = alt.Chart(alt.Data(values=dots)).mark_circle(size=16, opacity=0.6, color=COLOURS[0]).encode(x=x, y=y)
    rule = alt.Chart(alt.Data(values=[{"change": 0}])).mark_rule(color="grey").encode(x=x)
    return alt.layer(rule, grey, bars, seeds, points)
