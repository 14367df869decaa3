"""The curves of Nguyen et al. 2022 over λ."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.nguyen2022.curves import NAMES, Curves

_PANELS = {
    "AUPRC": "plausibility.all.pooled.auprc",
    "AUROC": "plausibility.all.pooled.auroc",
    "accuracy": "metrics.test.accuracy",
    "entropy H": "metrics.test.entropy",
}


def figures(cells: Finished) -> list[Figure]:
    curves = Curves(cells)
    names = [f"{NAMES[corpus]}, {vectors}" for corpus, vectors in curves.places]
    colour = alt.Color("corpus:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    charts = []
    for title, path in _PANELS.items():
        base = alt.Chart(alt.Data(values=_rows(curves, path)), width=300, height=200)
        x = alt.X("λ:Q", title="λ")
        y = alt.Y("mean(value):Q", title=title, scale=alt.Scale(zero=False))
        line = base.mark_line(point=True).encode(x=x, y=y, color=colour)
        dots = base.mark_circle(opacity=0.4, size=14).encode(x=x, y=alt.Y("value:Q", title=title), color=colour)
        charts.append(alt.layer(line, dots))
    caption = (
        "Pooled plausibility, accuracy and entropy by the weight of the penalty; a dot is a seed, the line their mean."
    )
    return [Figure("lambda", alt.concat(*charts, columns=2), caption)]


def _rows(curves: Curves, path: str) -> list[dict[str, Any]]:
    values = curves.of(path)
    return [
        {"corpus": f"{NAMES[corpus]}, {vectors}", "λ": strength, "value": float(value)}
        for corpus, vectors in curves.places
        for strength in curves.strengths
        for value in values.sel(corpus=corpus, vectors=vectors, strength=strength).values
    ]
