"""What `plot()` draws of a result, of one head in one text, and of a training."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import altair as alt
import xarray as xr

from lorgnette.axes import HEAD, KEY, LAYER, QUERY, STACK, STEP, Selected
from lorgnette.errors import UserError
from lorgnette.figures.cells import titled, weight
from lorgnette.figures.figure import Figure
from lorgnette.figures.plot import Plot
from lorgnette.figures.variables import states_as_layers, variable_figure
from lorgnette.reporting.contents import figures_of
from lorgnette.reporting.curves import step_chart
from lorgnette.results import Result
from lorgnette.subject.trace import Trace
from lorgnette.texts.readable import readable, readable_piece

if TYPE_CHECKING:
    from lorgnette.bare.callback import LensCallback

_CELL = 22  # pixels


def result_plot(result: Result, variable: str | None = None, **selection: Selected) -> Plot:
    """The figures that the report has of a result, or one variable: by head as a map, by layer as a curve."""
    origin = f"{result.lens}: {result.provenance.model}"
    if variable is None:
        if selection:
            raise UserError("To select, name a variable: result.plot('entropy', stack='encoder').")
        figures = {figure.title: figure.chart for figure in figures_of(result)}
        if not figures:
            raise UserError(f"The lens {result.lens!r} has no variable by layer to plot.")
        return Plot.below_each_other(figures, origin)
    states = states_as_layers(result)
    source = states if variable in states.data else result
    if variable in source.data and LAYER not in source.data[variable].dims:
        figure = _own_figure(result, variable, selection)
    else:
        figure = variable_figure(source, variable, None, **selection)
    return Plot.below_each_other({figure.title: figure.chart}, f"{origin}, {figure.title}")


def _own_figure(result: Result, variable: str, selection: Mapping[str, Selected]) -> Figure:
    """The report's figure of a variable that has no layers, such as the scores of explanations."""
    figures = {figure.name: figure for figure in figures_of(result)}
    if variable not in figures:
        known = f"; the report draws {', '.join(figures)}" if figures else ""
        raise UserError(f"{variable!r} of the lens {result.lens!r} has no layers and cannot be drawn by layer{known}.")
    if selection:
        raise UserError(f"{variable!r} has no layers and is drawn whole: leave out {', '.join(selection)}.")
    return figures[variable]


def trace_plot(
    trace: Trace, layer: int, head: int, *, stack: str | None = None, words: bool = True, part: str = "weights"
) -> Plot:
    """One head's weights: queries in rows, keys in columns."""
    if part != "weights":
        raise UserError(f"Only weights can be plotted, not {part!r}.")
    array = trace.head(layer, head, stack=stack, words=words)
    title = f"{trace.subject.name}, {stack or trace.stacks[0]} {layer}.{head}"
    return Plot(_matrix(array, readable if words else readable_piece), title)


def _matrix(weights: xr.DataArray, shown: Callable[[str], str]) -> alt.Chart:
    rows, columns = ([shown(text) for text in weights[f"{axis}_text"].values] for axis in (QUERY, KEY))
    cells = [
        {"query": i, "key": j, "weight": float(value), "label": f"{rows[i]} → {columns[j]}: {weight(float(value))}"}
        for i, row in enumerate(weights.values)
        for j, value in enumerate(row)
        if value == value  # a head that was removed has none
    ]
    if not cells:
        raise UserError("This head was removed from the model: it has no weights.")
    # A word may come twice: places are numbered, and the axis says the words.
    label = alt.Description(field="label", type="nominal")
    chart = alt.Chart(alt.Data(values=cells), width=alt.Step(_CELL), height=alt.Step(_CELL)).mark_rect()
    return chart.encode(
        x=alt.X(field="key", type="ordinal", title="key", axis=_words(columns, labelAngle=-60, orient="top")),
        y=alt.Y(field="query", type="ordinal", title="query", axis=_words(rows)),
        color=alt.Color(field="weight", type="quantitative", scale=alt.Scale(scheme="viridis", domain=[0, 1])),
        description=label,
        tooltip=alt.Tooltip(field="label", type="nominal"),
    )


def _words(words: list[str], **more: str | int) -> alt.Axis:
    # Text of the user inside an expression: as JSON it is a string and nothing else.
    texts = json.dumps(words, ensure_ascii=True)
    return alt.Axis(labelExpr=f"{texts}[datum.value]", ticks=False, domain=False, labelOverlap=False, **more)


def steps_plot(callback: "LensCallback", lens: str, variable: str, **selection: Selected) -> Plot:
    """A variable over the steps of a training: the mean over heads, a line for each layer, a panel for each stack."""
    data = callback.by_step(lens)
    if variable not in data or LAYER not in data[variable].dims:
        by_layer = [str(name) for name, array in data.data_vars.items() if LAYER in array.dims]
        raise UserError(f"{lens!r} has no {variable!r} by layer; it has {', '.join(by_layer)}.")
    array = data[variable].sel(selection)
    array = array.mean(HEAD) if HEAD in array.dims else array
    others = [str(dim) for dim in array.dims if dim not in (STEP, LAYER, STACK)]
    if others:
        raise UserError(f"{variable!r} also has {', '.join(others)}: choose, such as {others[0]}=…")
    frame = array.to_dataframe("value").reset_index().dropna()
    frame["panel"] = frame.get(STACK, "")
    chart = step_chart(frame, LAYER, titled(variable))
    return Plot(chart, f"{lens}: {titled(variable)} by step")
