"""The figures of the pure-attention models."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.fosse2023 import grid
from reproductions.fosse2023.attention_tables import KINDS
from reproductions.fosse2023.outcome import (
    NAMES,
    Outcome,
    accuracy,
    faithfulness,
    plausibility,
    replaced,
    sharpness,
    similarity,
    stiffness,
)
from reproductions.frame.record import Figure

_OURS, _PUBLISHED = "ours", "published"


def figures(outcome: Outcome, told: Any) -> Iterator[Figure]:
    yield _by_layer(outcome, told)
    if len(outcome.vectors) > 1:
        yield _by_vectors(outcome, told)
    if any(len(outcome.strengths(corpus)) > 1 for corpus in outcome.corpora):
        yield _by_strength(outcome, told)
    yield _flips(outcome)


def _by_layer(outcome: Outcome, told: Any) -> Figure:
    rows: list[dict[str, Any]] = []
    for corpus in outcome.corpora:
        for layers in outcome.depths(corpus):
            for what, name in (("key", "keys"), ("value", "values")):
                where = {"panel": f"{NAMES[corpus]}, {name}", "L": layers}
                for number in range(layers):
                    found = outcome.values(corpus, (layers, 0.0), similarity(what, number))
                    rows += [{**where, "layer": number + 1, "SIM": value, "of": _OURS} for value in found]
                for number, value in enumerate(told[what][corpus].get(str(layers), []), 1):
                    rows.append({**where, "layer": number, "SIM": value, "of": _PUBLISHED})
    depths = sorted({row["L"] for row in rows})
    colour = alt.Color("L:N", scale=alt.Scale(domain=depths, range=list(COLOURS[: len(depths)])), title="layers")
    caption = "SIM of keys and values by layer; a dot is a seed, the line their mean, a cross what was published."
    return Figure("layers", _panels(rows, colour), caption)


def _by_vectors(outcome: Outcome, told: Any) -> Figure:
    """The deepest models by what they start from."""
    rows: list[dict[str, Any]] = []
    deep = grid.DEPTHS[-1]
    for corpus in outcome.corpora:
        for what, name in (("key", "keys"), ("value", "values")):
            where = {"panel": f"{NAMES[corpus]}, {name}"}
            for vectors, number in product(outcome.vectors, range(deep)):
                found = outcome.values(corpus, (deep, 0.0), similarity(what, number), vectors)
                told_of = {**where, "vectors": vectors, "layer": number + 1, "of": _OURS}
                rows += [{**told_of, "SIM": value} for value in found]
            for number, value in enumerate(told[what][corpus].get(str(deep), []), 1):
                rows.append({**where, "vectors": _PUBLISHED, "layer": number, "SIM": value, "of": _PUBLISHED})
    names = [*outcome.vectors, _PUBLISHED]
    scale = alt.Scale(domain=names, range=[*COLOURS[: len(names) - 1], "#555555"])
    caption = (
        f"SIM of keys and values by layer of the models with {deep} layers, by the word vectors that they start from. "
        "A dot is a seed (random vectors have fewer), the line their mean, a cross what was published, from GloVe of "
        "width 300."
    )
    return Figure("vectors", _panels(rows, alt.Color("vectors:N", scale=scale, title="vectors")), caption)


def _panels(rows: Sequence[dict[str, Any]], colour: alt.Color) -> alt.ConcatChart:
    """SIM by layer, a panel for each corpus and kind of vector."""
    charts = []
    for panel in dict.fromkeys(row["panel"] for row in rows):
        ours = [row for row in rows if row["panel"] == panel and row["of"] == _OURS]
        printed = [row for row in rows if row["panel"] == panel and row["of"] == _PUBLISHED]
        x = alt.X("layer:Q", title="layer", axis=alt.Axis(tickMinStep=1, format="d"))
        y = alt.Y("SIM:Q", title="SIM", scale=alt.Scale(domainMax=1, zero=True))
        base = alt.Chart(alt.Data(values=ours), width=240, height=170, title=panel)
        line = base.mark_line().encode(x=x, y=alt.Y("mean(SIM):Q", title="SIM"), color=colour)
        dots = base.mark_circle(opacity=0.5, size=16).encode(x=x, y=y, color=colour)
        cross = alt.Chart(alt.Data(values=printed)).mark_point(shape="cross", size=40)
        charts.append(alt.layer(line, dots, cross.encode(x=x, y=y, color=colour)))
    return alt.concat(*charts, columns=2)


def _by_strength(outcome: Outcome, told: Any) -> Figure:
    panels = {
        "SIM of the values": similarity("value", 0, "regularisation"),
        "SIM of the keys": similarity("key", 0, "regularisation"),
        "entropy H": sharpness(),
        "pooled AUPRC": plausibility("attention", "auprc"),
        "comprehensiveness": faithfulness("comprehensiveness"),
        "accuracy": accuracy,
    }
    printed = {"SIM of the values": "value", "SIM of the keys": "key", "entropy H": "entropy"}
    table = told["regularisation"]
    names = [NAMES[corpus] for corpus in outcome.corpora]
    colour = alt.Color("corpus:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    order = [f"{strength:g}" for strength in outcome.size.strengths]
    charts = []
    for title, measure in panels.items():
        ours, theirs = [], []
        for corpus in outcome.corpora:
            for strength in outcome.strengths(corpus):
                where = {"corpus": NAMES[corpus], "λ": f"{strength:g}"}
                found = outcome.values(corpus, (1, strength), measure)
                ours += [{**where, "value": value} for value in found]
                if title in printed:
                    place = table["lambda"].index(strength)
                    theirs.append({**where, "value": table[corpus][printed[title]][place]})
        x = alt.X("λ:N", title="λ", sort=order, axis=alt.Axis(labelAngle=0))
        y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
        base = alt.Chart(alt.Data(values=ours), width=240, height=170)
        layers = [
            base.mark_line().encode(x=x, y=alt.Y("mean(value):Q", title=title), color=colour),
            base.mark_circle(opacity=0.5, size=16).encode(x=x, y=y, color=colour),
        ]
        if theirs:
            cross = alt.Chart(alt.Data(values=theirs)).mark_point(shape="cross", size=40)
            layers.append(cross.encode(x=x, y=y, color=colour))
        charts.append(alt.layer(*layers))
    caption = (
        "One layer, by the weight of the entropy penalty; a dot is a seed, the line their mean, a cross what was "
        "published."
    )
    return Figure("penalty", alt.concat(*charts, columns=2), caption)


def _flips(outcome: Outcome) -> Figure:
    rows: list[dict[str, Any]] = []
    for corpus in outcome.corpora:
        for point in outcome.everything(corpus):
            for kind in KINDS:
                for panel, measure in (("predictions that change", "flipped"), ("cos(CLS before, after)", "cosine")):
                    for one, other in outcome.pairs(corpus, [point], stiffness, replaced(kind, measure))[0]:
                        where = {"corpus": NAMES[corpus], "weights": kind, "L": str(point[0]), "panel": panel}
                        rows.append({**where, "SIM": one, "value": other})
    colour = alt.Color("weights:N", scale=alt.Scale(domain=list(KINDS), range=list(COLOURS[:3])), title="weights")
    charts = []
    for corpus in outcome.corpora:
        for panel in ("predictions that change", "cos(CLS before, after)"):
            some = [row for row in rows if row["corpus"] == NAMES[corpus] and row["panel"] == panel]
            chart = alt.Chart(alt.Data(values=some), width=240, height=190, title=NAMES[corpus])
            charts.append(
                chart.mark_point(filled=True, opacity=0.6, size=24).encode(
                    x=alt.X("SIM:Q", title="SIM of the last layer's values", scale=alt.Scale(zero=False)),
                    y=alt.Y("value:Q", title=panel),
                    color=colour,
                    shape=alt.Shape("L:N", title="layers"),
                )
            )
    caption = (
        "Weights replaced in all layers at test time: what changes, against how alike the values are. A mark is a "
        "training; all depths, λ and seeds."
    )
    return Figure("replaced", alt.concat(*charts, columns=2), caption)
