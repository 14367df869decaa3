"""The curves of Nguyen et al. 2022 over λ."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure, published
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
    ours = {strength for place in curves.places for strength in curves.levels(place)}
    order = [f"{strength:g}" for strength in sorted(ours | _printed_strengths())]
    colour = alt.Color("corpus:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    charts = []
    for title, path in _PANELS.items():
        base = alt.Chart(alt.Data(values=_rows(curves, path)), width=300, height=200)
        # In steps, not to scale: the small λ are where the paper has its peak.
        x = alt.X("λ:O", title="λ", sort=order, axis=alt.Axis(labelAngle=0))
        y = alt.Y("mean(value):Q", title=title, scale=alt.Scale(zero=False))
        line = base.mark_line(point=True).encode(x=x, y=y, color=colour)
        dots = base.mark_circle(opacity=0.4, size=14).encode(x=x, y=alt.Y("value:Q", title=title), color=colour)
        theirs = alt.Chart(alt.Data(values=_published(path, names)))
        crosses = theirs.mark_point(shape="cross", size=60, filled=True).encode(
            x=x, y=alt.Y("value:Q", title=title), color=colour
        )
        charts.append(alt.layer(line, dots, crosses))
    caption = (
        "Pooled plausibility, accuracy and entropy by the weight of the penalty, whose steps are not to scale; a dot "
        "is a seed, the line their mean, a cross what was published (other data, and vectors of width 300; in the "
        "colour of our GloVe models)."
    )
    return [Figure("lambda", alt.concat(*charts, columns=2), caption)]


def _printed_strengths() -> set[float]:
    return {strength for corpus in NAMES for strength in published("nguyen2022")[corpus]["lambda"]}


def _published(path: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The printed points of a measure; of e-SNLI the table of the thesis where the notebook has none."""
    printed, measure, rows = published("nguyen2022"), path.rsplit(".", 1)[-1], []
    for corpus, name in NAMES.items():
        label = next((one for one in names if one.startswith(name)), None)
        for table in (printed[corpus], printed.get(f"{corpus}_thesis", {})):
            if label is not None and measure in table:
                pairs = zip(table["lambda"], table[measure], strict=True)
                rows += [{"corpus": label, "λ": f"{s:g}", "value": v} for s, v in pairs if v is not None]
                break
    return rows


def _rows(curves: Curves, path: str) -> list[dict[str, Any]]:
    values = curves.of(path)
    return [
        {"corpus": f"{NAMES[corpus]}, {vectors}", "λ": f"{strength:g}", "value": float(value)}
        for corpus, vectors in curves.places
        for strength in curves.levels((corpus, vectors))
        for value in values.sel(corpus=corpus, vectors=vectors, strength=strength).values
    ]
