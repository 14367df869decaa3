"""The figures of the fine-tuned encoders: box plots of cosines, SIM by layer."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import altair as alt
import numpy as np

from reproductions.fosse2023.charts import colours
from reproductions.fosse2023.encoders.claims import Encoder, every
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure

_LIMITS = ("low", "q1", "median", "q3", "high")


def figures(cells: Finished, printed: Mapping[str, Any]) -> Iterator[Figure]:
    boxes = [_boxes(one) for one in every(cells) if (one.model, one.start) == ("minilm", "pretrained")]
    if boxes:
        caption = (
            "Cosine of test texts with representatives (at random, excluded) of each class, by true class, minilm "
            "fine-tuned: median, quartiles, 5th and 95th percentile over texts and draws, averaged over seeds. Blue: "
            "the representative's own class."
        )
        yield Figure("cones", alt.vconcat(*boxes, spacing=18), caption)
    if every(cells):
        yield _layers(cells, printed["esnli_sim"]["after"])


def _boxes(encoder: Encoder) -> Any:
    """Figure 2 of the paper: cosine with each class's representatives, by true class."""
    labels, rows = encoder.labels, []
    quantiles = encoder.mean("after.cones.random.quantile", ("direction", "class", "limit")).values
    for i, j in product(range(len(labels)), repeat=2):
        values = quantiles[i, j]
        if not np.isnan(values).any():
            own = "own class" if i == j else "another class"
            limits = dict(zip(_LIMITS, values.tolist(), strict=True))
            rows.append({"representative": f"r: {labels[i]}", "true class": labels[j], "of": own, **limits})
    base = alt.Chart(alt.Data(values=rows), width=130, height=150)
    x = alt.X("true class:N", title=None, sort=labels, axis=alt.Axis(labelAngle=-25))
    y = alt.Y("low:Q", title=f"{NAMES[encoder.corpus]}: cosine", scale=alt.Scale(domain=[-1, 1]))
    colour = colours("of", ("own class", "another class"))
    whisker = base.mark_rule().encode(x=x, y=y, y2="high:Q", color=colour)
    box = base.mark_bar(size=22, opacity=0.6).encode(x=x, y=alt.Y("q1:Q"), y2="q3:Q", color=colour)
    middle = base.mark_tick(size=22, thickness=2, color="black").encode(x=x, y=alt.Y("median:Q"))
    order = [f"r: {name}" for name in labels]
    return alt.layer(whisker, box, middle).facet(column=alt.Column("representative:N", sort=order, title=None))


def _layers(cells: Finished, printed: list[float]) -> Figure:
    """SIM by depth, before and after; the published BERT beside."""
    curves = {}
    for encoder in every(cells):
        name = encoder.model if encoder.start == "pretrained" else f"{encoder.model}, random weights"
        for when in ("before", "after"):
            sims = encoder.mean(f"{when}.sim.tokens", "layer").values.tolist()
            curves[NAMES[encoder.corpus], name, when] = sims
    if any(corpus == NAMES["esnli"] for corpus, _, _ in curves):
        curves[NAMES["esnli"], "BERT, published", "after"] = printed
    rows = [
        {"corpus": corpus, "model": name, "when": when, "depth": layer / (len(sims) - 1), "SIM": sim}
        for (corpus, name, when), sims in curves.items()
        for layer, sim in enumerate(sims)
    ]
    dashes = alt.Scale(domain=["after", "before"], range=[[1, 0], [4, 3]])
    chart = alt.Chart(alt.Data(values=rows), width=210, height=190).mark_line(point=alt.OverlayMarkDef(size=14))
    chart = chart.encode(
        x=alt.X("depth:Q", title="depth (0 embeddings, 1 last layer)"),
        y=alt.Y("SIM:Q", title="SIM within texts"),
        color=colours("model", list(dict.fromkeys(name for _, name, _ in curves))),
        strokeDash=alt.StrokeDash("when:N", scale=dashes, legend=None),
        column=alt.Column("corpus:N", title=None),
    )
    caption = "SIM of hidden states within texts by depth, before (dashed) and after (solid) training, mean over seeds."
    return Figure("sim-layers", chart, caption)
