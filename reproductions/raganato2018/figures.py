"""UAS of every head beside the baselines, the four patterns by head, probes by layer."""

from typing import Any

import altair as alt
import numpy as np

from lorgnette.figures.charts import COLOURS
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import array
from reproductions.frame.record import Figure
from reproductions.raganato2018.claims import TASK_NAMES
from reproductions.raganato2018.grid import TREEBANKS
from reproductions.raganato2018.reading import PATTERNS, Outcome, baseline, peaks, uas

_SHOWN = (TRAINED, SHUFFLED, RANDOM)
CONDITION_COLOURS = dict(zip(_SHOWN, (*COLOURS[:2], COLOURS[-1]), strict=True))
_LINES = {"head_is_next": "next word", "head_is_previous": "previous word", "random_tree": "random tree"}
_PATTERN_NAMES = {"self": "the word itself", "previous": "previous", "next": "next", "last": "last token"}


def figures(found: Outcome) -> list[Figure]:
    out = [heads(model, found) for model in found.trees]
    out += [patterns(model, found) for model in found.patterns]
    return [*out, probes(found)] if found.probes else out


def _scale() -> Any:
    return alt.Scale(domain=list(_SHOWN), range=list(CONDITION_COLOURS.values()))


def heads(model: str, found: Outcome) -> Figure:
    """A dot for every head, by layer and condition; lines for the baselines."""
    rows = [
        {"layer": layer + 1, "condition": condition, "uas": float(value), "head": f"{layer + 1}-{head + 1}"}
        for condition, cell in found.trees[model].items()
        for (layer, head), value in np.ndenumerate(uas(cell).mean(0))
    ]
    cell = found.trees[model][TRAINED]
    lines = [{"uas": float(baseline(cell, n).mean()), "name": label, "layer": 1} for n, label in _LINES.items()]
    dots = (
        alt.Chart(alt.Data(values=rows), width=460, height=260)
        .mark_circle(size=45, opacity=0.75)
        .encode(
            x=alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset(field="condition", type="nominal", sort=list(_SHOWN)),
            y=alt.Y(field="uas", type="quantitative", title="UAS of a head's tree"),
            color=alt.Color(field="condition", type="nominal", scale=_scale(), title=None),
        )
    )
    base = alt.Chart(alt.Data(values=lines))
    rule = base.mark_rule(strokeDash=[4, 3], color="#555").encode(y=alt.Y(field="uas", type="quantitative"))
    # The two lowest lines may lie close: one is named above, the other below.
    texts = [
        alt.Chart(alt.Data(values=[line]))
        .mark_text(align="left", dx=4, dy=10 if line["name"] == _LINES["random_tree"] else -5, color="#555")
        .encode(x=alt.value(0), y=alt.Y(field="uas", type="quantitative"), text=alt.Text(field="name", type="nominal"))
        for line in lines
    ]
    return Figure(
        f"heads-{model}",
        alt.layer(rule, dots, *texts),
        f"{model} on {TREEBANKS[model]}: UAS of the maximum spanning tree of every head (a dot), own rows, beside "
        "trees that know nothing of the sentence. Shuffled sentences have their own baselines, which are not drawn.",
    )


def patterns(model: str, found: Outcome) -> Figure:
    """Layer × head, a map for each pattern."""
    cell = found.patterns[model][TRAINED]
    maps: list[Any] = []
    for pattern in PATTERNS:
        rows = [
            {"layer": layer + 1, "head": head + 1, "share": float(value)}
            for (layer, head), value in np.ndenumerate(peaks(cell, pattern).mean(0))
        ]
        axis = alt.Axis(labelAngle=0, ticks=False, domain=False)
        chart = alt.Chart(alt.Data(values=rows), width=alt.Step(20), height=alt.Step(20)).mark_rect()
        maps.append(
            chart.encode(
                x=alt.X(field="head", type="ordinal", title="head", axis=axis),
                y=alt.Y(field="layer", type="ordinal", title="layer" if not maps else None, axis=axis),
                color=alt.Color(
                    field="share", type="quantitative", title="share", scale=alt.Scale(domain=[0, 1], scheme="blues")
                ),
            ).properties(title=_PATTERN_NAMES[pattern])
        )
    return Figure(
        f"patterns-{model}",
        alt.hconcat(*maps),
        f"{model}: share of the rows of words whose largest weight is on each of the four places.",
    )


def probes(found: Outcome) -> Figure:
    """Accuracy by layer, a panel for each label, a line for each condition, with 95 % intervals over sentences."""
    panels = []
    for task, cells in found.probes.items():
        rows = []
        for condition, cell in cells.items():
            for layer, (mean, error) in enumerate(
                zip(array(cell["accuracy"]), array(cell["accuracy_se"]), strict=True)
            ):
                ends = {"low": float(mean - 1.96 * error), "high": float(mean + 1.96 * error)}
                rows.append({"layer": layer, "condition": condition, "accuracy": float(mean), **ends})
        flat = [{"y": cells[TRAINED][name]} for name in ("majority", "type_majority")]
        panels.append(_probe_panel(rows, flat).properties(title=TASK_NAMES[task], width=170, height=150))
    caption = (
        "Accuracy of linear probes by layer of opus-mt-en-fr's encoder (0: embeddings with positions). Dashed: always "
        "the most frequent label; each word's most frequent label."
    )
    return Figure("probes", alt.concat(*panels, columns=3), caption)


def _probe_panel(rows: list[dict[str, Any]], flat: list[dict[str, Any]]) -> Any:
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0))
    colour = alt.Color(field="condition", type="nominal", scale=_scale(), title=None)
    zero = alt.Scale(zero=False)
    band = base.mark_area(opacity=0.2).encode(
        x=x,
        y=alt.Y(field="low", type="quantitative", title="accuracy", scale=zero),
        y2=alt.Y2(field="high"),
        color=colour,
    )
    line = base.mark_line(point=True).encode(
        x=x, y=alt.Y(field="accuracy", type="quantitative", scale=zero), color=colour
    )
    rule = alt.Chart(alt.Data(values=flat)).mark_rule(strokeDash=[4, 3], color="#777")
    return alt.layer(rule.encode(y=alt.Y(field="y", type="quantitative", scale=zero)), band, line)
