"""The figures of the pure-attention models."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import altair as alt

from reproductions.fosse2023.attention.penalty_claims import OF
from reproductions.fosse2023.attention.runs import REPLACED, Runs
from reproductions.fosse2023.attention.tables import PENALTY_KEYS, penalty_columns
from reproductions.fosse2023.charts import Axis, Row, colours, seeds_and_means
from reproductions.fosse2023.grid import DEPTHS, MAIN, NAMES, STRENGTHS
from reproductions.frame.page import Figure

_SIZE = {"width": 240, "height": 170}


def figures(runs: Runs, printed: Mapping[str, Any]) -> Iterator[Figure]:
    settings = [(f"{layers}", layers, MAIN) for layers in DEPTHS]
    caption = "SIM of keys and values by layer; a dot is a seed, the line their mean, a cross what was published."
    yield Figure(
        "layers", _by_layer(runs, printed, settings, colours("of", [str(n) for n in DEPTHS], "layers")), caption
    )
    if len(runs.vectors) > 1:
        yield _by_vectors(runs, printed)
    if any(len(runs.strengths(corpus)) > 1 for corpus in runs.corpora):
        yield _by_strength(runs, printed["regularisation"])
    yield _flips(runs)


def _by_vectors(runs: Runs, printed: Mapping[str, Any]) -> Figure:
    """The deepest models by what they start from."""
    deep, names = DEPTHS[-1], [*runs.vectors, "published"]
    settings = [(vectors, deep, vectors) for vectors in runs.vectors]
    caption = (
        f"SIM of keys and values by layer of the models with {deep} layers, by the word vectors that they start from. "
        "A dot is a seed (random vectors have fewer), the line their mean, a cross what was published, from GloVe of "
        "width 300."
    )
    colour = colours("of", names, "vectors", last="#555555")
    return Figure("vectors", _by_layer(runs, printed, settings, colour, "published"), caption)


def _by_layer(
    runs: Runs,
    printed: Mapping[str, Any],
    settings: Sequence[tuple[str, int, str]],
    colour: alt.Color,
    theirs: str | None = None,
) -> alt.ConcatChart:
    """SIM by layer, a panel for each corpus and kind of vector; the published ones under a colour of their own."""
    x = alt.X("layer:Q", title="layer", axis=alt.Axis(tickMinStep=1, format="d"))
    y = Axis("SIM", "SIM", alt.Scale(domainMax=1, zero=True))
    charts = []
    for corpus, (of, name) in product(runs.corpora, OF.items()):
        ours: list[Row] = []
        crosses: dict[tuple[int, int], Row] = {}
        for label, layers, vectors in settings:
            for layer in range(1, layers + 1):
                values = runs.sim(of, corpus, (layers, 0.0), layer, vectors=vectors).tolist()
                ours += [{"of": label, "layer": layer, "SIM": value} for value in values]
            for layer, value in enumerate(printed[of][corpus].get(str(layers), ()), 1):
                crosses[layers, layer] = {"of": theirs or label, "layer": layer, "SIM": value}
        chart = seeds_and_means(ours, list(crosses.values()), x, y, colour, **_SIZE)
        charts.append(chart.properties(title=f"{NAMES[corpus]}, {name}"))
    return alt.concat(*charts, columns=2)


_PENALTY = {
    "SIM(V)": "SIM of the values",
    "SIM(K)": "SIM of the keys",
    "H": "entropy H",
    "AUPRC": "pooled AUPRC",
    "comprehensiveness": "comprehensiveness",
    "accuracy": "accuracy",
}


def _by_strength(runs: Runs, printed: Mapping[str, Any]) -> Figure:
    colour = colours("corpus", [NAMES[corpus] for corpus in runs.corpora])
    order = [f"{strength:g}" for strength in STRENGTHS]
    x = alt.X("λ:N", title="λ", sort=order, axis=alt.Axis(labelAngle=0))
    charts = []
    for column, title in _PENALTY.items():
        ours: list[Row] = []
        crosses: list[Row] = []
        for corpus in runs.corpora:
            read = penalty_columns(runs, corpus)[column]
            for strength in runs.strengths(corpus):
                where = {"corpus": NAMES[corpus], "λ": f"{strength:g}"}
                ours += [{**where, "value": value} for value in read((1, strength)).tolist()]
                if column in PENALTY_KEYS and strength in printed["lambda"]:
                    values = printed[corpus][PENALTY_KEYS[column]]
                    crosses.append({**where, "value": values[printed["lambda"].index(strength)]})
        y = Axis("value", title, alt.Scale(zero=False))
        charts.append(seeds_and_means(ours, crosses, x, y, colour, **_SIZE))
    caption = (
        "One layer, by the weight of the entropy penalty; a dot is a seed, the line their mean, a cross what was "
        "published."
    )
    return Figure("penalty", alt.concat(*charts, columns=2), caption)


def _flips(runs: Runs) -> Figure:
    panels = {"flipped": "predictions that change", "cosine": "cos(CLS before, after)"}
    charts = []
    for corpus, (measure, title) in product(runs.corpora, panels.items()):
        rows = [
            {"weights": kind, "L": str(point[0]), "SIM": sim, "value": value}
            for point, kind in product(runs.points(corpus), REPLACED)
            for sim, value in zip(
                runs.stiffness(corpus, point).tolist(),
                runs.replaced(kind, measure, corpus, point).tolist(),
                strict=True,
            )
        ]
        chart = alt.Chart(alt.Data(values=rows), width=240, height=190, title=NAMES[corpus])
        charts.append(
            chart.mark_point(filled=True, opacity=0.6, size=24).encode(
                x=alt.X("SIM:Q", title="SIM of the last layer's values", scale=alt.Scale(zero=False)),
                y=alt.Y("value:Q", title=title),
                color=colours("weights", REPLACED, "weights"),
                shape=alt.Shape("L:N", title="layers"),
            )
        )
    caption = (
        "Weights replaced in all layers at test time: what changes, against how alike the values are. A mark is a "
        "training; all depths, λ and seeds."
    )
    return Figure("replaced", alt.concat(*charts, columns=2), caption)
