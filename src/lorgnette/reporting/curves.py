"""Results with a step axis: every number over the steps of a training, as curves and in sentences."""

from collections.abc import Iterator

import altair as alt
import pandas as pd
import xarray as xr

from lorgnette.axes import HEAD, LAYER, ROLE, STACK, STEP
from lorgnette.figures.cells import said, shown, titled
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.results import Result

_PANELS = 8
"""A variable with more panels than this (stacks, kinds of token …) is in the numbers alone."""


def has_steps(result: Result) -> bool:
    return STEP in result.data.dims


def step_figures(result: Result) -> list[Figure]:
    """A figure for each number by layer, mean over heads; for roles, how many heads have each."""
    names = shown(result)
    out = [figure for name in names if (figure := _figure(result, name)) is not None]
    if "label" in result.data and ROLE in result.data["label"].dims:
        out.insert(0, _role_curves(result))
    return out


def _figure(result: Result, name: str) -> Figure | None:
    array = result.data[name]
    array = array.mean(HEAD) if HEAD in array.dims else array
    others = [dim for dim in array.dims if dim not in (STEP, LAYER)]
    frame = array.to_dataframe("value").reset_index().dropna(subset=["value"])
    several = [dim for dim in others if array.sizes[dim] > 1]
    frame["panel"] = frame[several].map(said).agg(", ".join, axis=1) if several else ""
    if frame.empty or frame["panel"].nunique() > _PANELS:
        return None
    caption = "Mean over heads, a line for each layer." if HEAD in result.data[name].dims else "A line for each layer."
    table = frame[[STEP, *others, LAYER, "value"]]
    chart = step_chart(frame, LAYER, titled(name))
    return Figure(name, f"{titled(name)} by step", caption, chart, table, result.to_dataframe(name), True)


def _role_curves(result: Result) -> Figure:
    counts = result.data["label"].sum([dim for dim in (LAYER, HEAD) if dim in result.data["label"].dims])
    frame = counts.to_dataframe("value").reset_index()
    frame = frame[frame.groupby(ROLE)["value"].transform("max") > 0].assign(panel=lambda rows: rows[STACK])
    chart = step_chart(frame, ROLE, "heads")
    return Figure("roles", "Heads with each role, by step", "Heads whose label beats its control.", chart,
                  frame[[STEP, STACK, ROLE, "value"]], frame, True)  # fmt: skip


def step_chart(frame: pd.DataFrame, line: str, title: str) -> alt.Chart:
    """Curves over steps: a line for each value of one column, a panel for each `panel`."""
    rows = [
        {STEP: int(step), line: name if line == ROLE else int(name), "value": float(value), "panel": str(panel)}
        for step, name, value, panel in frame[[STEP, line, "value", "panel"]].itertuples(index=False)
    ]
    names = list(dict.fromkeys(row[line] for row in rows))
    colours = alt.Scale(domain=names, range=[COLOURS[place % len(COLOURS)] for place in range(len(names))])
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    across = 3 if len(panels) == 3 else 2
    chart = alt.Chart(alt.Data(values=rows), width=390 if across == 2 else 250, height=220).mark_line(point=True)
    chart = chart.encode(
        x=alt.X(field=STEP, type="quantitative", title="step", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y(field="value", type="quantitative", title=title, scale=alt.Scale(zero=False)),
        color=alt.Color(field=line, type="ordinal", title=line, scale=colours),
    )
    if len(panels) > 1:
        chart = chart.encode(facet=alt.Facet(field="panel", type="nominal", title=None, columns=across, sort=panels))
    return chart


def step_findings(result: Result) -> Iterator[Finding]:
    """From the first step to the last: numbers of one value a head or layer, and when roles appear."""
    steps = result.data[STEP].values.tolist()
    at = {"first": steps[0], "last": steps[-1]}
    if "label" in result.data and ROLE in result.data["label"].dims:
        yield from _role_findings(result.data["label"], steps)
    for name in shown(result):
        array = result.data[name]
        if not set(array.dims) <= {STEP, STACK, LAYER, HEAD}:
            continue
        means = array.mean([dim for dim in array.dims if dim != STEP])
        low, high = float(means[0]), float(means[-1])
        over = "heads" if HEAD in array.dims else "layers"
        yield Finding(
            "{name}: {before:.3f} at step {first}, {after:.3f} at step {last} (mean over {over}).",
            {"name": titled(name), "before": low, "after": high, "over": over, **at},
        )


def _role_findings(label: xr.DataArray, steps: list[int]) -> Iterator[Finding]:
    counts = label.sum([dim for dim in label.dims if dim not in (STEP, ROLE)])
    for role in label[ROLE].values.tolist():
        heads = counts.sel({ROLE: role}).values.tolist()
        if any(heads):
            first = next(step for step, count in zip(steps, heads, strict=True) if count)
            yield Finding(
                "{role} heads: {count} at step {last}; the first appears at step {first}.",
                {"role": role.replace("_", "-"), "first": first, "count": int(heads[-1]), "last": steps[-1]},
            )
