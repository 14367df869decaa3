"""BLEU by heads left, every way to choose them, beside random sets."""

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.heavy_lifting.readings import ARMS, Readings

_WHOLE = "all heads"


def figures(cells: Finished) -> list[Figure]:
    readings = Readings(cells)
    whole = readings.whole()
    lines, dots = [], []
    for left in readings.left:
        for name, title in ARMS.items():
            gaps = [value - whole[seed] for seed, value in readings.arm(name, left).items() if seed in whole]
            if gaps:
                lines.append({"heads": left, "way": title, "change": sum(gaps) / len(gaps)})
        for seed, values in readings.draws(left).items():
            dots += [{"heads": left, "change": value - whole[seed]} for value in values if seed in whole]
    colour = alt.Color(
        "way:N", title=None, scale=alt.Scale(domain=list(ARMS.values()), range=list(COLOURS[: len(ARMS)]))
    )
    x = alt.X("heads:Q", title="heads left", scale=alt.Scale(reverse=True), axis=alt.Axis(values=readings.left))
    y = alt.Y("change:Q", title="BLEU less that of the whole model", scale=alt.Scale(zero=False))
    base = alt.Chart(alt.Data(values=lines), width=460, height=300).mark_line(point=True)
    sets = alt.Chart(alt.Data(values=dots)).mark_circle(size=16, opacity=0.35, color="grey").encode(x=x, y=y)
    caption = (
        "BLEU by heads left, less that of the whole model; means over seeds, equal steps for all. A grey dot is a "
        "random set of heads with as many in every layer as gates left."
    )
    return [Figure("bleu", alt.layer(sets, base.encode(x=x, y=y, color=colour)), caption)]
