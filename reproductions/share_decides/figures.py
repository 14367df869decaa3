"""The lead of gates over the gradient, by the share of heads that goes."""

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.share_decides.readings import Readings, name

PAIRS = {
    ("facilitation", "gradient"): "gates over gradient",
    ("facilitation", "output_length"): "gates over output length",
    ("output_length", "gradient"): "output length over gradient",
}


def figures(cells: Finished) -> list[Figure]:
    r = Readings(cells)
    charts = []
    names = [name(place) for place in r.places]
    for (one, other), title in PAIRS.items():
        rows = [
            {"model": name(place), "share": share, "lead": r.lead(place, one, other, share)}
            for place in r.places
            for share in r.shares
        ]
        base = alt.Chart(alt.Data(values=rows), width=150, height=190, title=title)
        lines = base.mark_line(point=True).encode(
            x=alt.X("share:O", title="share of heads gone", axis=alt.Axis(format="%", labelAngle=0)),
            y=alt.Y("lead:Q", title="lead"),
            color=alt.Color("model:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None),
        )
        zero = alt.Chart(alt.Data(values=[{"lead": 0}])).mark_rule(color="grey", strokeDash=[4, 4]).encode(y="lead:Q")
        charts.append(alt.layer(zero, lines))
    caption = (
        "By how much less is lost by the first signal, in what random sets of half of the heads lose; a line is a "
        "model on a corpus, above 0 the first is the better guide."
    )
    return [Figure("leads", alt.hconcat(*charts), caption)]
