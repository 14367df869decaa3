"""What the pages show of edges: the strongest paths, and how well attribution predicts what patching finds."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import xarray as xr

from lorgnette.axes import CHOICE, EDGE, HEAD_A, STACK, WAY, WRITER
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, heads, written
from lorgnette.figures.lens_report import EXPLANATIONS, Compared, LensReport, Measure
from lorgnette.figures.sentences import has, over_texts, significant_heads
from lorgnette.figures.variables import titled_figures
from lorgnette.lens.edges.attribution import DESCRIPTIONS
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate
from lorgnette.types import Json

_DRAWN = 24
"""Edges in a chart."""
_NAMED = 3
_CHOSEN = {"strongest": "strongest by attribution", "drawn": "drawn at random"}


def figures(result: Result) -> list[Figure]:
    exact = [_predicted(result)] if "exact" in result.data and result.data.sizes[EDGE] else []
    return [
        _strongest(result),
        *exact,
        *titled_figures(result, {"to_logits": "What heads write straight to the output"}),
    ]


def _strongest(result: Result) -> Figure:
    """The largest attributions of all edges, with intervals, and the exact effect where an edge was patched."""
    import pandas as pd

    frame = pd.DataFrame(_edges(result.data), columns=["edge", "attribution", "half"])
    frame = frame.loc[frame["attribution"].abs().sort_values(ascending=False, kind="stable").index[:_DRAWN]]
    exact = dict(zip(result.data[EDGE].values.tolist(), result.data["exact"].values.tolist(), strict=True)) \
        if "exact" in result.data else {}  # fmt: skip
    frame["exact"] = [exact.get(edge, np.nan) for edge in frame["edge"]]
    rows: list[Json] = []
    for edge, value, half, patched in frame.itertuples(index=False):
        half = half if half == half else 0.0
        rows.append({"edge": edge, "value": value, "low": value - half, "high": value + half, "kind": "attribution"})
        if patched == patched:
            rows.append({"edge": edge, "value": patched, "kind": "patched exactly"})
    base = alt.Chart(alt.Data(values=rows), width=340, height=alt.Step(16))
    down = alt.Y(field="edge", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=440))
    kinds = ["attribution", *(["patched exactly"] if exact else [])]
    colour = alt.Color(
        field="kind", type="nominal", legend=alt.Legend(title=None, orient="top"),
        scale=alt.Scale(domain=kinds, range=list(COLOURS[: len(kinds)])),
    )  # fmt: skip
    points = base.mark_point(filled=True, size=50, opacity=0.9).encode(
        x=alt.X(field="value", type="quantitative", title="effect on the logit"), y=down, color=colour
    )
    lines = base.mark_rule().encode(x=alt.X(field="low", type="quantitative"), x2=alt.X2(field="high"), y=down)
    caption = "Lines are 95 % confidence intervals of the attribution over texts."
    table = frame.drop(columns="half").round(5)
    return Figure("strongest", "The edges with the largest attributions", caption, lines + points, table, frame)


def _predicted(result: Result) -> Figure:
    """Every patched edge as a point: its attribution, and its exact effect."""
    frame = (
        result.data[["estimated", "exact", "chosen"]].drop_vars(CHOICE, errors="ignore").to_dataframe().reset_index()
    )
    rows = [
        {"edge": row.edge, "estimated": float(row.estimated), "exact": float(row.exact), "kind": _CHOSEN[row.chosen]}
        for row in frame.itertuples(index=False)
        if row.exact == row.exact
    ]
    chart = alt.Chart(alt.Data(values=rows), width=320, height=280).mark_point(filled=True, size=50, opacity=0.8)
    chart = chart.encode(
        x=alt.X(field="exact", type="quantitative", title="exact effect on the logit"),
        y=alt.Y(field="estimated", type="quantitative", title="attribution"),
        color=alt.Color(
            field="kind", type="nominal", legend=alt.Legend(title=None, orient="top"),
            scale=alt.Scale(domain=list(_CHOSEN.values()), range=list(COLOURS[:2])),
        ),
        tooltip=alt.Tooltip(field="edge", type="nominal"),
    )  # fmt: skip
    caption = "Means over texts. An edge far from the diagonal is one that the attribution misjudges."
    return Figure("predicted", "Attribution and exact effect of edges", caption, chart, frame.round(5), frame)


def _edges(data: xr.Dataset) -> Iterator[tuple[str, float, float]]:
    """Every edge that is not zero: its name, its attribution, and half its interval."""
    for name in DESCRIPTIONS:
        found = Estimate.of(data, name)
        values = found.value.values
        half = np.broadcast_to(found.half.values, values.shape)
        labels = {str(dim): found.value[dim].values.tolist() for dim in found.value.dims}
        for at in zip(*np.nonzero(np.nan_to_num(values)), strict=True):
            cell = {dim: labels[dim][n] for dim, n in zip(labels, at, strict=True)}
            yield _name(cell), float(values[at]), float(half[at])


def _name(cell: Json) -> str:
    """The name of an edge, as `edge_name` gives it."""
    place = f"{cell.get(STACK)} {cell.get('layer')}"
    if WAY in cell:
        return f"{cell.get(HEAD_A, cell.get(WRITER))} → {place}-{cell['head']} {cell[WAY]}"
    if "head" in cell:
        return f"{place}-{cell['head']} → logits"
    if "layer" in cell:
        return f"{cell.get(HEAD_A, cell.get(WRITER))} → {place} feed-forward"
    return f"{cell[WRITER]} → logits"


def findings(result: Result) -> Iterator[Finding]:
    """How many edges between heads are significant and which are largest, and how far to trust the attribution."""
    data = result.data
    found = Estimate.of(data, "attribution")
    there = found.value.notnull() & (found.value != 0)
    numbers: Json = {"edges": int(there.sum())}
    if numbers["edges"]:
        sure = there & (data["attribution_q"] < LEVEL)
        numbers["count"] = int(sure.sum())
        if numbers["count"]:
            numbers["named"] = _largest(found, sure)
            yield Finding(
                f"{{count}} of {{edges}} edges from one head into the queries, keys or values of a later one "
                f"{has(numbers['count'])} an attribution that differs significantly from zero (false discovery rate "
                "5 % over all edges of the model); the largest: {named}.",
                numbers,
            )
        else:
            yield Finding(
                f"None of {{edges}} edges from one head into the queries, keys or values of a later one has an "
                f"attribution that differs significantly from zero{over_texts(found)}.",
                numbers,
                nothing=True,
            )
    yield from _straight(data)
    yield from _patched(data)
    yield from _alike(data)


def _straight(data: xr.Dataset) -> Iterator[Finding]:
    found = Estimate.of(data, "to_logits")
    cells = heads(abs(found.value))
    if not cells or cells[0].value == 0:  # an encoder has no edge to a translation's output
        return
    sure = data["to_logits_q"] < LEVEL
    named, _ = significant_heads(Estimate(abs(found.value), found.se, found.count), sure, found.value)
    if named:
        count = int(sure.sum())
        yield Finding(
            f"{{count}} of {{heads}} heads {has(count)} a significant edge straight to the output (false discovery "
            "rate 5 % over all edges), among them {named}.",
            {"count": count, "heads": len(cells), "named": named},
        )


def _patched(data: xr.Dataset) -> Iterator[Finding]:
    """How many of the patched edges have an effect, by how they were chosen."""
    if "exact_q" not in data:
        return
    for how, words in _CHOSEN.items():
        own = data["chosen"].values == how
        count = int((data["exact_q"].values[own] < LEVEL).sum())
        if own.any():
            yield Finding(
                f"{{count}} of {{edges}} edges {words} {has(count)} an exact effect that differs significantly from "
                "zero (false discovery rate 5 % over all patched edges).",
                {"count": count, "edges": int(own.sum())},
            )


def _alike(data: xr.Dataset) -> Iterator[Finding]:
    if "alike" not in data:
        return
    for how, words in _CHOSEN.items():
        names = ("alike", "alike_count", "alike_low", "alike_high")
        rho, count, low, high = (float(data[name].sel({CHOICE: how})) for name in names)
        if rho == rho:
            numbers: Json = {"count": int(count), "rho": rho, "low": low, "high": high}
            sure = " (95 % interval over texts {low:.3f} to {high:.3f})" if low == low else ""
            same = "; they were chosen on the same texts" if how == "strongest" else ""
            yield Finding(
                f"Over {{count}} edges {words}, the attribution ranks the exact effects with ρ = {{rho:.3f}}{sure}"
                f"{same}.",
                numbers,
            )


def _largest(found: Estimate, sure: xr.DataArray) -> str:
    """The largest of the attributions that are sure, by name, with their values."""
    flat = found.value.where(sure).stack(cell=found.value.dims).dropna("cell")
    order = np.argsort(-np.abs(flat.values), kind="stable")[:_NAMED]
    half = found.half.stack(cell=found.value.dims).sel(cell=flat["cell"])
    digits = decimals(*(float(half[n]) for n in order))
    names = []
    for n in order:
        cell = {str(dim): flat["cell"][n][dim].item() for dim in found.value.dims}
        own = str(found.value[STACK].item()) if STACK in found.value.coords else ""
        stack, _, early = str(cell[HEAD_A]).replace("-", ".").rpartition(" ")
        early = early if stack == own or not own else f"{stack} {early}"
        value = written(float(flat[n]), f"+.{digits}f")
        names.append(f"{early} → {cell['layer']}.{cell['head']} {cell[WAY]} ({value})")
    return ", ".join(names)


def cards(result: Result) -> Iterator[Measure]:
    about = "effect on the logit, to first order, of what the head writes and only the output reads"
    yield Measure("to the output", about, result.data["to_logits"], "+.3f")


REPORT = LensReport(
    title="Which paths the prediction takes",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(Compared("to_logits", "attribution of what heads write straight to the output"),),
    cards=cards,
)
