"""The maps of heads: relevance, confidence, what is lost without them, and functions; and how these go together."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np

from lorgnette.figures.charts import COLOURS
from reproductions.frame.record import Figure
from reproductions.voita2019.heads import CONFIDENCE, METHODS, MULTI30K, UD
from reproductions.voita2019.heads_reading import ABLATION, GRADIENT, STACKS, Looked, correlation

FUNCTIONS = ("positional", "syntactic", "rare", "special", "punctuation", "broad", "another", "none")
_STEP = 19
_PANELS = {
    "voita2019": "(a) relevance, voita2019",
    "voita2021": "(a) relevance, voita2021",
    "attnlrp": "(a) relevance, attnlrp",
    "ah": "(a) relevance, ah",
    CONFIDENCE: "(b) confidence",
    GRADIENT: "gradient",
    ABLATION: "loss without the head",
}


def figures(looked: Looked) -> Iterator[Figure]:
    for stack, title in STACKS.items():
        figure = _maps(looked, stack, title)
        if figure is not None:
            yield figure
    for make in (_scatter, _agreement):
        figure = make(looked)
        if figure is not None:
            yield figure


def functions(looked: Looked, stack: str) -> list[list[str]] | None:
    """One function for each head, the first that fits; syntax from PUD, all else from Multi30k."""
    roles, parsed = looked.roles(MULTI30K), looked.roles(UD)
    if roles is None:
        return None
    labels = {name: roles.label(name, stack) for name in roles.cell["roles"]}
    if stack == "encoder" and parsed is not None:
        labels["syntactic"] = parsed.label("syntactic", stack)
    shape = next(iter(labels.values())).shape
    out = [["none"] * shape[1] for _ in range(shape[0])]
    for layer, head in np.ndindex(shape):
        has = [name for name, table in labels.items() if table[layer, head]]
        known = [name for name in FUNCTIONS if name in has]
        out[layer][head] = known[0] if known else "another" if has else "none"
    return out


def _maps(looked: Looked, stack: str, title: str) -> Figure | None:
    signals = looked.signals(stack)
    panels = [_map(signals[name].mean(axis=0), text) for name, text in _PANELS.items() if name in signals]
    given = functions(looked, stack)
    if given is not None:
        panels.append(_function_map(given))
    if not panels:
        return None
    caption = (
        f"The {title}-attention heads of opus-mt-en-fr on Multi30k, as in the paper's figures (a), (b) and (c), with "
        "what taking heads away says beside them. Relevance is a share of the layer's, with its sign."
    )
    if stack == "encoder":
        caption += " Syntax is from PUD."
    chart = alt.concat(*panels, columns=4).resolve_scale(color="independent")
    return Figure(f"heads_{stack}", chart, caption)


def _axes() -> dict[str, Any]:
    quiet = alt.Axis(labelAngle=0, ticks=False, domain=False)
    return {"x": alt.X("head:O", title="head", axis=quiet), "y": alt.Y("layer:O", title="layer", axis=quiet)}


def _map(values: np.ndarray, title: str) -> Any:
    rows = [{"layer": i + 1, "head": j + 1, "value": float(values[i, j])} for i, j in np.ndindex(values.shape)]
    signed = bool((values < 0).any())
    scale = alt.Scale(scheme="blueorange", domainMid=0) if signed else alt.Scale(scheme="blues", zero=True)
    legend = alt.Legend(title=None, gradientLength=90, gradientThickness=8, tickCount=3)
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(_STEP), height=alt.Step(_STEP), title=title).mark_rect()
    return chart.encode(**_axes(), color=alt.Color("value:Q", scale=scale, legend=legend))


def _function_colour(legend: Any = alt.Undefined) -> Any:
    scale = alt.Scale(domain=list(FUNCTIONS), range=list(COLOURS))
    return alt.Color("function:N", scale=scale, title=None, legend=legend)


def _function_map(given: list[list[str]]) -> Any:
    rows = [
        {"layer": i + 1, "head": j + 1, "function": name} for i, row in enumerate(given) for j, name in enumerate(row)
    ]
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(_STEP), height=alt.Step(_STEP), title="(c) functions")
    return chart.mark_rect().encode(**_axes(), color=_function_colour())


def _scatter(looked: Looked) -> Figure | None:
    """Relevance beside confidence, by function: what the one finds and the other does not."""
    confidence, given = looked.blocks(CONFIDENCE, "encoder"), functions(looked, "encoder")
    if confidence is None or given is None:
        return None
    charts = []
    for method in METHODS:
        blocks = looked.blocks(method, "encoder")
        if blocks is None:
            continue
        one, other = blocks.mean(axis=0), confidence.mean(axis=0)
        rows = [
            {"confidence": float(other[at]), "relevance": float(one[at]), "function": given[at[0]][at[1]]}
            for at in np.ndindex(one.shape)
        ]
        chart = alt.Chart(alt.Data(values=rows), width=190, height=170, title=method).mark_circle(size=60, opacity=0.9)
        y = alt.Y("relevance:Q", title="relevance, share of the layer")
        charts.append(chart.encode(x=alt.X("confidence:Q"), y=y, color=_function_colour()))
    if not charts:
        return None
    caption = "Encoder heads: relevance by four rules beside confidence, coloured by function; a dot for each head."
    return Figure("heads_relevance_confidence", alt.concat(*charts, columns=4), caption)


def _agreement(looked: Looked) -> Figure | None:
    charts, order = [], [CONFIDENCE, *METHODS, GRADIENT]
    for stack, title in STACKS.items():
        signals = looked.signals(stack)
        if ABLATION not in signals:
            continue
        rows = []
        for name in order:
            if name in signals:
                found = correlation(signals[name].mean(axis=0), signals[ABLATION].mean(axis=0))
                low, high = found.interval
                rows.append({"signal": name, "rho": found.value, "low": low, "high": high})
        base = alt.Chart(alt.Data(values=rows), width=190, height=130, title=title)
        y = alt.Y("signal:N", sort=order, title=None)
        title_x = "ρ with the loss without the head"
        x = alt.X("rho:Q", title=title_x, scale=alt.Scale(domain=[-1, 1]))
        bars = base.mark_rule().encode(y=y, x=alt.X("low:Q", title=title_x), x2="high:Q")
        zero = base.mark_rule(color="#9A9A9A", strokeDash=[3, 3]).encode(x=alt.datum(0))
        charts.append(zero + bars + base.mark_circle(size=60, color=COLOURS[0]).encode(y=y, x=x))
    if not charts:
        return None
    caption = "Which signal ranks the heads of a layer as taking them away does? ρ within layers, 95 % over heads."
    return Figure("heads_agreement", alt.concat(*charts, columns=3), caption)
