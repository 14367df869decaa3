"""UAS of every head beside the baselines, the four patterns by head, probes by layer."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np

from lorgnette.figures.charts import COLOURS
from lorgnette.looking.controls import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.head_maps import dots, head_map
from reproductions.frame.page import Figure
from reproductions.raganato2018.claims import PLACES, TASK_NAMES
from reproductions.raganato2018.grid import TREEBANKS
from reproductions.raganato2018.readings import (
    PATTERNS,
    baseline,
    conditions,
    models,
    over_sentences,
    patterns,
    probe,
    tasks,
    trees,
)

_SHOWN = (TRAINED, SHUFFLED, RANDOM)
_LINES = {"head_is_next": "next word", "head_is_previous": "previous word", "random_tree": "random tree"}
_WIDTH = 460
_DASHED = {"strokeDash": [4, 3], "color": "#777"}


def figures(cells: Finished) -> Iterator[Figure]:
    yield from (_heads(cells, model) for model in models(cells, "trees"))
    yield from (_patterns(cells, model) for model in models(cells, "patterns"))
    if tasks(cells):
        yield _probes(cells)


def _colour() -> Any:
    scale = alt.Scale(domain=list(_SHOWN), range=[*COLOURS[:2], COLOURS[-1]])
    return alt.Color("condition:N", scale=scale, title=None)


def _heads(cells: Finished, model: str) -> Figure:
    """A dot for every head, by layer and condition; lines for the baselines."""
    rows = [
        {"layer": layer + 1, "condition": condition, "uas": float(value)}
        for condition in conditions(cells, kind="trees", model=model)
        for (layer, _), value in np.ndenumerate(
            trees(cells, model, condition)["uas"].sel(way="to_head").mean("block").values
        )
    ]
    chart = dots(rows, width=_WIDTH, height=260).mark_circle(size=45, opacity=0.75)
    chart = chart.encode(
        x=alt.X("layer:O", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("condition:N", sort=list(_SHOWN)),
        y=alt.Y("uas:Q", title="UAS of a head's tree"),
        color=_colour(),
    )
    lines = [{"uas": float(baseline(trees(cells, model), n).mean()), "name": label} for n, label in _LINES.items()]
    rule = dots(lines).mark_rule(**_DASHED).encode(y="uas:Q")
    # Beside the dots; the two lowest lines may lie close: one is named above, the other below.
    names = [
        dots([line])
        .mark_text(align="left", dx=4, dy=7 if line["name"] == _LINES["random_tree"] else -4, color="#555")
        .encode(x=alt.value(_WIDTH), y="uas:Q", text="name:N")
        for line in lines
    ]
    caption = (
        f"{model} on {TREEBANKS[model]}: UAS of the maximum spanning tree of every head (a dot), own rows, beside "
        "trees that know nothing of the sentence. Shuffled sentences have their own baselines, which are not drawn."
    )
    return Figure(f"heads-{model}", alt.layer(rule, chart, *names), caption)


def _patterns(cells: Finished, model: str) -> Figure:
    shares = patterns(cells, model).mean("block")
    maps = [head_map(shares.sel(pattern=name).values, PLACES[name], domain=(0, 1)) for name in PATTERNS]
    caption = f"{model}: share of the rows of words whose largest weight is on each of the four places."
    return Figure(f"patterns-{model}", alt.hconcat(*maps), caption)


def _probes(cells: Finished) -> Figure:
    """Accuracy by layer, a panel for each label, a line for each condition, with 95 % intervals over sentences."""
    panels = [_probe(cells, task).properties(title=TASK_NAMES[task], width=170, height=150) for task in tasks(cells)]
    caption = (
        "Accuracy of linear probes by layer of opus-mt-en-fr's encoder (0: embeddings with positions). Dashed: always "
        "the most frequent label; each word's most frequent label."
    )
    return Figure("probes", alt.concat(*panels, columns=3), caption)


def _probe(cells: Finished, task: str) -> Any:
    rows = []
    for condition in conditions(cells, kind="probe", task=task):
        data = probe(cells, task, condition)
        for layer, mean, error in zip(
            data["layer"].values, data["accuracy"].values, data["accuracy_se"].values, strict=True
        ):
            whole = over_sentences(float(mean), float(error))
            ends = {"low": whole.low, "high": whole.high}
            rows.append({"layer": int(layer), "condition": condition, "accuracy": float(mean), **ends})
    flat = [{"y": probe(cells, task).attrs[name]} for name in ("majority", "type_majority")]
    x, zero = alt.X("layer:O", axis=alt.Axis(labelAngle=0)), alt.Scale(zero=False)
    base = dots(rows)
    band = base.mark_area(opacity=0.2).encode(
        x=x, y=alt.Y("low:Q", title="accuracy", scale=zero), y2="high:Q", color=_colour()
    )
    line = base.mark_line(point=True).encode(x=x, y=alt.Y("accuracy:Q", scale=zero), color=_colour())
    rule = dots(flat).mark_rule(**_DASHED).encode(y=alt.Y("y:Q", scale=zero))
    return alt.layer(rule, band, line)
