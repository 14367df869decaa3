"""Figures of the variables of any result: heat maps by head, curves by layer, shares of a whole."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lorgnette.axes import CATEGORY, HEAD, LAYER, STACK, STATE, Selected
from lorgnette.figures import charts
from lorgnette.figures.cells import beside, chosen, partition, shown, table, titled
from lorgnette.figures.figure import Figure
from lorgnette.results import Result

if TYPE_CHECKING:
    import xarray as xr

MOST_PANELS = 12  # a variable with more is drawn by layer, not by head
OF_HEADS = "Each dot is a head; the band is the 95 % confidence interval of their mean."
OF_TEXTS = "The band is the 95 % confidence interval over texts (Student's t)."


def variable_figure(result: Result, variable: str, title: str | None = None, **selection: Selected) -> Figure:
    """A heat map for a variable with heads, curves for one with layers only."""
    array = chosen(result, variable, selection)
    count = array.size // max(1, array.sizes["layer"] * array.sizes.get(HEAD, 1))
    is_map = HEAD in array.dims and count <= MOST_PANELS
    chart = (charts.heat_map if is_map else charts.layer_curves)(result, variable, **selection)
    about = str(array.attrs.get("description", "")).strip()
    caption = [f"{about[:1].upper()}{about[1:]}."] if about else []
    if is_map and count > 1:
        caption.append("All panels share one colour scale.")
    elif not is_map and HEAD in array.dims:
        caption.append(OF_HEADS)
    elif not is_map and beside(result, array, "_se") is not None:
        caption.append(OF_TEXTS)
    data = result.to_dataframe(variable)
    return Figure(variable, title or titled(variable), " ".join(caption), chart, table(array), data, count > 1)


def figure_per_variable(result: Result) -> list[Figure]:
    """A figure for every variable with a number for every layer: what a lens gets that asks for no others."""
    return [variable_figure(result, name) for name in shown(result)]


def titled_figures(result: Result, titles: dict[str, str]) -> list[Figure]:
    """A figure for each of these variables that the result has, under its title."""
    present = shown(result)
    return [variable_figure(result, name, title) for name, title in titles.items() if name in present]


def categories_present(result: Result, variable: str, categories: tuple[str, ...]) -> list[str]:
    """The categories of token that occur in the texts of this model."""
    array = result.data[variable]
    known = [category for category in categories if category in array[CATEGORY].values]
    return [category for category in known if bool(array.sel({CATEGORY: category}).notnull().any())]


def figures_by_stack(result: Result, variable: str, title: str, categories: list[str]) -> list[Figure]:
    """Heat maps by category of token, a figure for each stack with the categories that it has."""
    stacks = result.data[variable][STACK].values.tolist() if STACK in result.data[variable].dims else []
    if len(stacks) < 2:
        return [variable_figure(result, variable, title, category=categories)]
    figures = []
    for stack in stacks:
        part = Result(result.lens, result.data.sel({STACK: [stack]}), result.provenance)
        if present := categories_present(part, variable, tuple(categories)):
            figure = variable_figure(part, variable, f"{title}: {stack}", category=present)
            figures.append(replace(figure, name=f"{variable}-{stack}"))
    return figures


def states_as_layers(result: Result) -> Result:
    """Variables of hidden states by layer, with layer 0 for the embeddings."""
    data = result.data
    names = [name for name, array in data.data_vars.items() if STATE in array.dims and LAYER not in array.dims]
    states: xr.Dataset = data[names]
    if names:
        states = states.drop_vars(LAYER, errors="ignore").rename({STATE: LAYER})
    return Result(result.lens, states, result.provenance)


def share_figure(result: Result, title: str) -> Figure:
    """Shares of a whole by layer."""
    import pandas as pd

    names = charts.shares(result)
    means = {}
    for name in names:
        array = partition(chosen(result, name, {}))
        means[name] = array.mean(HEAD) if HEAD in array.dims else array
    tables = [
        table(mean.rename(name)).assign(of=names[name].removeprefix("share of ").removeprefix("the "))
        for name, mean in means.items()
    ]
    data = pd.concat([result.to_dataframe(name).assign(of=name) for name in names], ignore_index=True)
    caption = "Mean over heads; the categories are mutually exclusive."
    chart = charts.categories_by_layer(result)
    whole = pd.concat(tables, ignore_index=True)
    if len(names) == 1:
        whole = whole.drop(columns="of")
    wide = len(names) * result.data.sizes.get(STACK, 1) > 1
    return Figure("categories", title, caption, chart, whole, data, wide=wide)
