"""SIM by layer, raw and centred: encoders, and classifiers by how they were trained."""

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.free_constant.grid import ARMS
from reproductions.free_constant.measure import KINDS, VECTORS
from reproductions.free_constant.readings import Readings, Trainings
from reproductions.free_constant.tables import SAID


def figures(cells: Finished) -> list[Figure]:
    r, t = Readings(cells), Trainings(cells)
    return [*([_encoders(r)] if r.models else ()), *([_classifiers(t)] if any(map(t.seeds, ARMS)) else ())]


def _panel(rows: list[dict[str, object]], title: str, width: int = 150) -> alt.Chart:
    names = [f"{vector}s, {kind}" for vector in VECTORS for kind in KINDS]
    shades = [COLOURS[0], COLOURS[0], COLOURS[1], COLOURS[1]]
    colour = alt.Color("what:N", scale=alt.Scale(domain=names, range=shades), title=None)
    dash = alt.StrokeDash("what:N", scale=alt.Scale(domain=names, range=[[4, 3], [1, 0], [4, 3], [1, 0]]), title=None)
    y = alt.Y("sim:Q", title="SIM", scale=alt.Scale(domain=[-0.1, 1]))
    x = alt.X("layer:O", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    base = alt.Chart(alt.Data(values=rows), width=width, height=150, title=title)
    return base.mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)


def _encoders(r: Readings) -> Figure:
    charts = []
    for model in r.models:
        rows: list[dict[str, object]] = [
            {"what": f"{vector}s, {kind}", "layer": layer, "sim": value}
            for vector in VECTORS
            for kind in KINDS
            for layer, value in enumerate(r.sim(model, vector, kind).tolist(), 1)
        ]
        charts.append(_panel(rows, model))
    caption = (
        "SIM by layer of pretrained encoders, mean over heads: dashed raw, solid minus one constant per head, the "
        "mean over other texts."
    )
    return Figure(
        "encoders", alt.vconcat(*(alt.hconcat(*charts[k : k + 3]) for k in range(0, len(charts), 3))), caption
    )


def _classifiers(t: Trainings) -> Figure:
    charts = []
    for arm in (arm for arm in ARMS if t.seeds(arm)):
        rows: list[dict[str, object]] = [
            {"what": f"{vector}s, {kind}", "layer": layer, "sim": value}
            for vector in VECTORS
            for kind in KINDS
            for layer, value in enumerate(t.mean(arm, vector if kind == "raw" else f"{vector}_{kind}").tolist(), 1)
        ]
        charts.append(_panel(rows, SAID[arm]))
    caption = (
        "Mean cosine of all pairs of tokens of a text (SIM) by layer of classifiers on HateXplain, by how they were "
        "trained: dashed raw, solid minus one constant, the mean over all test texts. Mean over seeds."
    )
    return Figure("classifiers", alt.hconcat(*charts), caption)
