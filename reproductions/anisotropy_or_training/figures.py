"""SIM against what was learnt, and SIM by layer."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.anisotropy_or_training.grid import DEEP, SLOW, WIDTHS, Setting
from reproductions.anisotropy_or_training.runs import HIGH, LESS, Runs
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure, published

_LINES = {
    "random-300": Setting("random-300"),
    "random-300, step size 0.0003": Setting("random-300", SLOW),
    "padded-300": Setting("padded-300"),
    "padded-300, step size 0.0003": Setting("padded-300", SLOW),
    "glove-100": Setting("glove-100"),
}


def figures(cells: Finished) -> list[Figure]:
    runs = Runs(cells)
    learnt = (
        f"SIM of the last values and accuracy on the training texts. A point is a run of {DEEP} layers. Above the "
        f"dashed line SIM is over {HIGH}; left of the dotted line a run learnt less than GloVe of width 100 (by more "
        f"than {LESS})."
    )
    layers = "SIM of the values by layer, mean over seeds. Crosses: published, from GloVe of width 300."
    return [Figure("learnt", _learnt(runs), learnt), Figure("layers", _layers(runs), layers)]


def _learnt(runs: Runs) -> Any:
    charts = []
    for corpus in runs.corpora:
        rows = []
        for one in runs.settings(corpus, deep=True):
            warm = ", warm-up" if one.warmup else ""
            for sim, accuracy in zip(runs.sim(corpus, one), runs.accuracy(corpus, one), strict=True):
                about = {"vectors": one.vectors, "training": f"step size {one.rate:g}{warm}"}
                rows.append({**about, "SIM": float(sim), "accuracy": float(accuracy)})
        names = [name for name in WIDTHS if any(row["vectors"] == name for row in rows)]
        points = alt.Chart(alt.Data(values=rows), width=300, height=260).mark_point(filled=True, size=45, opacity=0.75)
        points = points.encode(
            x=alt.X("accuracy:Q", title="accuracy on the training texts", scale=alt.Scale(zero=False)),
            y=alt.Y("SIM:Q", title="SIM of the last values", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("vectors:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)]))),
            shape=alt.Shape("training:N", title=None),
        )
        high = alt.Chart(alt.Data(values=[{"SIM": HIGH}])).mark_rule(color="grey", strokeDash=[5, 4]).encode(y="SIM:Q")
        least = [{"accuracy": runs.reference(corpus, "train") - LESS}]
        less = alt.Chart(alt.Data(values=least)).mark_rule(color="grey", strokeDash=[1, 3]).encode(x="accuracy:Q")
        layers = (high, less, points) if runs.at(corpus, Setting("glove-100")) else (high, points)
        layers += (_at_chance(runs, corpus),)
        charts.append(alt.layer(*layers).properties(title=NAMES[corpus]))
    return alt.hconcat(*charts)


def _at_chance(runs: Runs, corpus: str) -> Any:
    """How many runs are at chance: they lie upon each other."""
    deep = [(one, ~runs.learnt(corpus, one).astype(bool)) for one in runs.settings(corpus, deep=True)]
    dead = [pair for one, at in deep
            for pair in zip(runs.accuracy(corpus, one)[at], runs.sim(corpus, one)[at], strict=True)]  # fmt: skip
    rows = [{"accuracy": float(a), "SIM": float(s), "said": f"{len(dead)} runs at chance"}
            for a, s in dead[: int(len(dead) > 1)]]  # fmt: skip
    text = alt.Chart(alt.Data(values=rows)).mark_text(align="left", dx=8, dy=10, fontSize=11)
    return text.encode(x="accuracy:Q", y="SIM:Q", text="said:N")


def _layers(runs: Runs) -> Any:
    printed, charts = published("anisotropy_or_training")["value"], []
    for corpus in runs.corpora:
        rows = [
            {"model": name, "layer": layer, "SIM": float(runs.sim(corpus, one, layer=layer).mean())}
            for name, one in _LINES.items()
            if runs.at(corpus, one)
            for layer in range(1, DEEP + 1)
        ]
        crosses = [{"layer": layer, "SIM": value} for layer, value in enumerate(printed[corpus], 1)]
        x = alt.X("layer:Q", title="layer", axis=alt.Axis(tickMinStep=1, format="d"))
        y = alt.Y("SIM:Q", title="SIM of the values", scale=alt.Scale(domain=[0, 1]))
        colour = alt.Color(
            "model:N", scale=alt.Scale(domain=list(_LINES), range=list(COLOURS[: len(_LINES)])), title=None
        )
        lines = (
            alt.Chart(alt.Data(values=rows), width=300, height=220).mark_line(point=True).encode(x=x, y=y, color=colour)
        )
        cross = alt.Chart(alt.Data(values=crosses)).mark_point(shape="cross", size=60, color="#333333").encode(x=x, y=y)
        charts.append(alt.layer(lines, cross).properties(title=NAMES[corpus]))
    return alt.hconcat(*charts)
