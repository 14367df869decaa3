"""The figures of part 3: box plots of cosines, SIM by layer."""

from typing import TYPE_CHECKING, Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.fosse2023.pretrained_reading import NAMES, at, mean_of
from reproductions.frame.record import Figure

if TYPE_CHECKING:
    from reproductions.fosse2023.pretrained_page import Found

_LIMITS = ("low", "q1", "median", "q3", "high")


def boxes(found: "Found") -> Figure:
    """Figure 2 of the paper: cosine with each class's representatives, by true class; minilm from its checkpoint."""
    corpora = dict.fromkeys(place[1] for place in found.places() if place[::2] == ("minilm", "pretrained"))
    charts = [_corpus(found, corpus) for corpus in corpora]
    return Figure(
        "cones",
        alt.vconcat(*charts, spacing=18) if charts else _empty(),
        "Cosine of test texts with representatives (at random, excluded) of each class, by true class, minilm "
        "fine-tuned: median, quartiles, 5th and 95th percentile over texts and draws, averaged over seeds. Blue: the "
        "representative's own class.",
    )


def _corpus(found: "Found", corpus: str) -> Any:
    results = found.of("minilm", corpus, "pretrained")
    labels = results[0]["labels"]
    rows = []
    for direction, first in enumerate(labels):
        for label, second in enumerate(labels):
            if results[0]["after"]["cones"]["random"]["quantile"][direction][label] is None:
                continue
            values = {
                limit: mean_of(results, at("after", "cones", "random", "quantile", direction, label, n))
                for n, limit in enumerate(_LIMITS)
            }
            own = "own class" if first == second else "another class"
            rows.append({"representative": f"r: {first}", "true class": second, "of": own, **values})
    base = alt.Chart(alt.Data(values=rows), width=130, height=150)
    x = alt.X("true class:N", title=None, sort=labels, axis=alt.Axis(labelAngle=-25))
    y = alt.Y("low:Q", title=f"{NAMES[corpus]}: cosine", scale=alt.Scale(domain=[-1, 1]))
    colour = alt.Color(
        "of:N",
        scale=alt.Scale(domain=["own class", "another class"], range=list(COLOURS[:2])),
        legend=alt.Legend(title=None),
    )
    whisker = base.mark_rule().encode(x=x, y=y, y2="high:Q", color=colour)
    box = base.mark_bar(size=22, opacity=0.6).encode(x=x, y=alt.Y("q1:Q"), y2="q3:Q", color=colour)
    middle = base.mark_tick(size=22, thickness=2, color="black").encode(x=x, y=alt.Y("median:Q"))
    order = [f"r: {name}" for name in labels]
    return alt.layer(whisker, box, middle).facet(column=alt.Column("representative:N", sort=order, title=None))


def _empty() -> Any:
    return alt.Chart(alt.Data(values=[])).mark_point()


def layers(found: "Found", told: Any) -> Figure:
    """SIM by layer, before and after; the published BERT beside."""
    rows: list[dict[str, Any]] = []
    for model, corpus, start in found.places():
        results = found.of(model, corpus, start)
        name = model if start == "pretrained" else f"{model}, random weights"
        for when in ("before", "after"):
            for layer in range(len(results[0]["after"]["sim"]["tokens"])):
                value = mean_of(results, at(when, "sim", "tokens", layer))
                depth = layer / (len(results[0]["after"]["sim"]["tokens"]) - 1)
                rows.append({"corpus": NAMES[corpus], "model": name, "when": when, "depth": depth, "SIM": value})
    if any(place[1] == "esnli" for place in found.places()):
        values = told["esnli_sim"]["after"]
        where = {"corpus": NAMES["esnli"], "model": "BERT, published", "when": "after"}
        rows += [{**where, "depth": n / (len(values) - 1), "SIM": value} for n, value in enumerate(values)]
    names = list(dict.fromkeys(row["model"] for row in rows))
    chart = alt.Chart(alt.Data(values=rows), width=210, height=190).mark_line(point=alt.OverlayMarkDef(size=14))
    chart = chart.encode(
        x=alt.X("depth:Q", title="depth (0 embeddings, 1 last layer)"),
        y=alt.Y("SIM:Q", title="SIM within texts"),
        color=alt.Color("model:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None),
        strokeDash=alt.StrokeDash(
            "when:N", scale=alt.Scale(domain=["after", "before"], range=[[1, 0], [4, 3]]), legend=None
        ),
        column=alt.Column("corpus:N", title=None),
    )
    return Figure(
        "sim-layers",
        chart,
        "SIM of hidden states within texts by depth, before (dashed) and after (solid) training, mean over seeds.",
    )
