"""Charts of results, one function each: `Result` in, Altair chart out; how they look is decided when they are drawn."""

import json
from collections.abc import Container, Iterable, Sequence
from itertools import product
from typing import Any

import altair as alt
import numpy as np
import xarray as xr

from lorgnette.axes import CATEGORY, HEAD, LAYER, STACK, Selected
from lorgnette.errors import UserError
from lorgnette.figures.cells import beside, chosen, number, panels, partition, records, said, titled
from lorgnette.figures.label_places import fitted, label_places
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Chart, Json

# Okabe and Ito 2008, told apart by all kinds of colour vision; grey is for what is left over.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#9A9A9A")
POSITIVE, NEGATIVE = COLOURS[0], COLOURS[3]
"""The colours of a sign where it is one of two kinds, as in `signed_scale`."""
KIND_COLOURS = dict(
    zip(("cls", "sep", "period_comma", "previous", "next", "self", "broad", "other"), COLOURS, strict=True)
)
_NO_KIND = "no dominant pattern"
_WIDEST = 360  # pixels of a heat map that stands alone, so that two of them stand side by side
_MULTIPLE = 180
_TALLEST, _TALL_MULTIPLE = 360, 240  # pixels: the rows of a deep model are lower than wide, so that a page stays short
_COLUMNS = 4
_PAGE = 860
_NAMES = 40  # of heads that an axis has room for
_FEW = 4  # heads below which an interval of their mean says nothing


def heat_map(result: Result, variable: str, **selection: Selected) -> Chart:
    """Layer × head, a cell per head; what else the variable has (categories, stacks) as small multiples.

    `heat_map(result, "mass", category="cls")` selects. The colours of small multiples mean the same numbers.
    """
    array = chosen(result, variable, selection)
    if LAYER not in array.dims or HEAD not in array.dims:
        raise UserError(f"{variable!r} has axes {', '.join(map(str, array.dims))}: a heat map needs layer and head.")
    rows = records(result, array)
    if not rows:
        return _nothing(variable)
    names = list(dict.fromkeys(row["panel"] for row in rows))
    step, row = cell_steps(array.sizes[LAYER], array.sizes[HEAD], several=len(names) > 1)
    columns = max(_COLUMNS, _PAGE // (step * array.sizes[HEAD] + 40))
    scale = _colour_scale([row["value"] for row in rows])
    maps = []
    for place, name in enumerate(names):
        # Only the outer panels say what the axes are.
        outer = (place % columns == 0, place // columns == (len(names) - 1) // columns)
        panel = _cell_map([row for row in rows if row["panel"] == name], variable, (step, row), scale, *outer)
        maps.append(panel.properties(title=name) if name else panel)
    return alt.concat(*maps, columns=columns) if len(maps) > 1 else maps[0]


def cell_steps(layers: int, heads: int, *, several: bool) -> tuple[int, int]:
    """Width and height of a cell in pixels: one map fills its place, and several stand side by side."""
    across = max(7, min(44, (_MULTIPLE if several else _WIDEST) // heads))
    return across, min(across, max(7, (_TALL_MULTIPLE if several else _TALLEST) // layers))


def _cell_map(rows: list[Json], variable: str, steps: tuple[int, int], scale: Any, left: bool, bottom: bool) -> Chart:
    across, down = steps
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(across), height=alt.Step(down)).mark_rect()
    return chart.encode(
        x=alt.X(field="head", type="ordinal", title="head" if bottom else None, axis=cell_axis(across)),
        y=alt.Y(field="layer", type="ordinal", title="layer" if left else None, axis=cell_axis(down)),
        color=alt.Color(field="value", type="quantitative", scale=scale, title=titled(variable)),
        description=alt.Description(field="label", type="nominal"),
        tooltip=alt.Tooltip(field="label", type="nominal"),
    )


def cell_axis(step: int) -> Any:
    """The axis of cells that are `step` pixels wide or high: numbers that would touch each other are left out."""
    every = 1 if step >= 17 else 2 if step >= 9 else 4
    labels = {} if every == 1 else {"labelExpr": f"(datum.value - 1) % {every} == 0 ? datum.label : ''"}
    return alt.Axis(labelAngle=0, ticks=False, domain=False, labelOverlap=False, **labels)


def head_axis(names: Sequence[str]) -> Any:
    """The axis of heads in a line, at 1, 2, … : their names, or of many heads the names of some at equal distances."""
    every = -(-len(names) // _NAMES)
    shown = {place: name for place, name in enumerate(names, 1) if (place - 1) % every == 0}
    expression = f"{json.dumps({str(place): name for place, name in shown.items()})}[datum.value]"
    return alt.Axis(grid=False, values=list(shown), labelExpr=expression, labelAngle=-90, labelOverlap=False)


def percent_axis() -> Any:
    """The axis of a share, with a space before the sign, as in sentences."""
    return alt.Axis(labelExpr="format(datum.value * 100, '~g') + ' %'")


def class_matrix(frame: Any, down: str, across: str, value: str) -> Chart:
    """Class × class, with the number in each cell; cosines, so the scale is centred on the right angle."""
    rows = [
        {"down": str(d), "across": str(a), "value": float(v), "label": f"{v:.2f}"}
        for d, a, v in frame[[down, across, value]].itertuples(index=False)
    ]
    axis = alt.Axis(labelAngle=0, ticks=False, domain=False)
    base = alt.Chart(alt.Data(values=rows), width=alt.Step(64), height=alt.Step(40)).encode(
        x=alt.X(field="across", type="nominal", title="class", sort=None, axis=axis),
        y=alt.Y(field="down", type="nominal", title="direction of", sort=None, axis=axis),
    )
    cells = base.mark_rect().encode(
        color=alt.Color(field="value", type="quantitative", scale=signed_scale(1.0), title="cosine")
    )
    return cells + base.mark_text().encode(text=alt.Text(field="label", type="nominal"))


def layer_curves(result: Result, variable: str, **selection: Selected) -> Chart:
    """The mean over heads by layer with its 95 % interval, heads being the sample (t distribution); a dot per head.

    Fewer than four heads have no interval. A variable without heads is drawn with its standard error over texts
    instead. Further labels are colours.
    """
    array = chosen(result, variable, selection)
    if LAYER not in array.dims:
        raise UserError(f"{variable!r} has axes {', '.join(map(str, array.dims))}: curves need a layer.")
    if not panels(array):
        return _nothing(variable)
    *outer, inner = ["", *(str(dim) for dim in array.dims if dim not in (LAYER, HEAD) and array.sizes[dim] > 1)]
    names = [said(label) for label in array[inner].values.tolist()] if inner else [""]
    if len(outer) < 2:
        return _curves(result, array, names, width=390)
    # One colour per label of the last axis; the other axes are panels, or there would be more colours than can be told.
    charts = []
    for labels in product(*(array[dim].values.tolist() for dim in outer[1:])):
        part = array.sel({dim: [label] for dim, label in zip(outer[1:], labels, strict=True)})
        if bool(part.notnull().any()):
            charts.append(_curves(result, part, names, width=340).properties(title=" · ".join(map(said, labels))))
    return alt.concat(*charts, columns=2).resolve_scale(y="shared")


def _curves(result: Result, array: xr.DataArray, names: list[str], width: int) -> Chart:
    variable, means, several = str(array.name), _means(result, array), len(names) > 1
    drawn = {str(row["panel"]) for row in means}
    colour = _series(names, drawn) if several else alt.value(COLOURS[0])
    first = "layer (0: embeddings)" if 0 in array[LAYER].values else "layer"
    x = alt.X(field="layer", type="ordinal", title=first, axis=alt.Axis(labelAngle=0))
    y = alt.Y(field="mean", type="quantitative", title=titled(variable), scale=alt.Scale(zero=False, nice=True))
    base = alt.Chart(alt.Data(values=means), width=width, height=220)
    band = base.mark_area(opacity=0.2).encode(
        x=x, y=alt.Y(field="low", type="quantitative", title=titled(variable)), y2=alt.Y2(field="high"), color=colour
    )
    label = alt.Description(field="label", type="nominal")
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    dots = base.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, color=colour, description=label)
    layers = [band, line, dots]
    if HEAD in array.dims and not several:
        heads = alt.Chart(alt.Data(values=records(result, array))).mark_point(filled=True, size=14, opacity=0.35)
        value = alt.Y(field="value", type="quantitative", title=titled(variable))
        layers.insert(0, heads.encode(x=x, y=value, color=colour, description=label))
    return alt.layer(*layers)


def categories_by_layer(result: Result, **selection: Selected) -> Chart:
    """How each layer shares out its weight (mean over heads) among kinds of token; with norms, the norm beside it."""
    arrays = {name: partition(chosen(result, variable, selection)) for variable, name in shares(result).items()}
    rows = [row for name, array in arrays.items() for row in _share_rows(name, array)]
    kinds = _kinds(row["kind"] for row in rows)
    rows = [{**row, "order": list(kinds).index(row["kind"])} for row in rows]
    step = max(10, min(60, 270 // max(row["layer"] for row in rows)))
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(step), height=220).mark_bar()
    chart = chart.encode(
        x=alt.X(field="layer", type="ordinal", title="layer", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(field="value", type="quantitative", title="share", scale=alt.Scale(domain=[0, 1])),
        color=alt.Color(
            field="kind",
            type="nominal",
            title=None,
            scale=alt.Scale(domain=list(kinds), range=list(kinds.values())),
            legend=alt.Legend(orient="bottom", columns=2),
        ),
        order=alt.Order(field="order", type="quantitative"),
        description=alt.Description(field="label", type="nominal"),
    )
    order = list(dict.fromkeys(row["panel"] for row in rows))
    if len(order) == 1:
        return chart
    columns = max(2, *(array.sizes.get(STACK, 1) for array in arrays.values()))
    return chart.encode(facet=alt.Facet(field="panel", type="nominal", title=None, sort=order, columns=columns))


def _share_rows(name: str, array: xr.DataArray) -> list[Json]:
    mean = array.mean(HEAD) if HEAD in array.dims else array
    rows = []
    for cell in mean.stack(cell=mean.dims).dropna("cell"):
        layer, kind = int(cell[LAYER].item()), said(cell[CATEGORY].item())
        panel = f"{cell[STACK].item()} · {name}" if array.sizes.get(STACK, 1) > 1 else name
        label = f"{panel}, layer {layer}, {kind}: {number(cell.item())}"
        rows.append({"layer": layer, "kind": kind, "panel": panel, "value": cell.item(), "label": label})
    return rows


def shares(result: Result) -> dict[str, str]:
    """The variables that share out a whole among kinds of token, and what they are a share of."""
    known = {"mass": "share of attention", "weight": "share of attention", "norm_share": "share of the norm"}
    measures = {
        name: what for name, what in known.items() if name in result.data and CATEGORY in result.data[name].dims
    }
    if not measures:
        raise UserError(f"The lens {result.lens!r} has nothing by category of token; the lens 'weights' has.")
    return measures


def head_map(result: Result, **selection: Selected) -> Chart:
    """Heads as points, near each other where their attention is alike, coloured by what they attend to."""
    arrays = {name: chosen(result, name, selection) for name in ("x", "y", "kind")}
    maps: dict[str, list[Json]] = {}
    for panel, piece in panels(arrays["x"]):
        at = {dim: piece[dim].item() for dim in arrays["x"].dims if dim not in piece.dims}
        for cell in piece.stack(cell=(LAYER, HEAD)).dropna("cell"):
            here = {**at, LAYER: cell[LAYER].item(), HEAD: cell[HEAD].item()}
            kind, name = arrays["kind"].sel(here).item(), f"{here[LAYER]}.{here[HEAD]}"
            kind = _NO_KIND if kind == "other" else said(kind)
            row = {"x": cell.item(), "y": arrays["y"].sel(here).item(), "kind": kind, "name": name}
            maps.setdefault(panel, []).append({**row, "label": f"head {name}: {kind}"})
    kinds = _kinds(row["kind"] for rows in maps.values() for row in rows)
    if len(maps) == 1:
        return _points(next(iter(maps.values())), kinds, 480)
    return alt.concat(*(_points(rows, kinds, 400).properties(title=panel) for panel, rows in maps.items()), columns=2)


def _points(rows: list[Json], kinds: dict[str, str], width: int) -> Chart:
    height = width * 3 // 4
    pixels = fitted([(row["x"], row["y"]) for row in rows], width, height)
    # Only heads with a pattern are named, where there is room.
    names = [None if row["kind"] == _NO_KIND else row["name"] for row in rows]
    places = label_places(pixels, names, width, height)
    drawn = [{**row, "x": x, "y": y} for row, (x, y) in zip(rows, pixels, strict=True)]
    labels = [{"x": p[0], "y": p[1], "name": row["name"]} for row, p in zip(rows, places, strict=True) if p]

    def place(channel: Any, size: int) -> Any:
        scale = alt.Scale(domain=[0, size], nice=False, zero=False, reverse=channel is alt.Y)
        return channel(field=channel.__name__.lower(), type="quantitative", axis=None, scale=scale)

    x, y = place(alt.X, width), place(alt.Y, height)
    colour = alt.Color(
        field="kind", type="nominal", title=None, scale=alt.Scale(domain=list(kinds), range=list(kinds.values()))
    )
    points = alt.Chart(alt.Data(values=drawn), width=width, height=height).mark_point(filled=True, size=60, opacity=0.9)
    points = points.encode(x=x, y=y, color=colour, description=alt.Description(field="label", type="nominal"))
    text = alt.Chart(alt.Data(values=labels)).mark_text(fontSize=10)
    return alt.layer(points, text.encode(x=x, y=y, text=alt.Text(field="name", type="nominal")))


def _means(result: Result, array: xr.DataArray) -> list[Json]:
    """Mean and interval by layer, a record each."""
    spread, texts = (beside(result, array, tail) for tail in ("_se", "_count"))
    out = []
    for panel, piece in panels(array):
        at = {dim: piece[dim].item() for dim in array.dims if dim not in piece.dims and dim in piece.coords}
        for layer in piece[LAYER].values:
            values = np.atleast_1d(piece.sel({LAYER: layer}).values)
            values = values[~np.isnan(values)]
            if not len(values):
                continue
            mean, half = float(values.mean()), 0.0
            if HEAD in array.dims and len(values) >= _FEW:
                half = float(Estimate.mean(values).half)
            elif HEAD not in array.dims and spread is not None:
                here = {**at, LAYER: layer}
                error, count = spread.sel(here).item(), np.nan if texts is None else texts.sel(here).item()
                half = float(np.nan_to_num(Estimate(mean, error, count).half))
            more = f" ± {number(half)}" if half else ""
            label = f"{f'{panel}, ' if panel else ''}layer {layer}: {number(mean)}{more}"
            row = {"layer": int(layer), "panel": panel, "mean": mean, "low": mean - half, "high": mean + half}
            out.append({**row, "label": label})
    return out


def _nothing(variable: str) -> Chart:
    """Where every cell is missing (a corpus of one sentence, say) a chart says so, and the page is whole."""
    words = [{"said": f"{titled(variable)}: no text gives a number"}]
    return alt.Chart(alt.Data(values=words)).mark_text().encode(text=alt.Text(field="said", type="nominal"))


def signed_scale(edge: float) -> Any:
    """From −edge to edge: blue above zero and orange below, in every chart and in the views of a text."""
    return alt.Scale(scheme="blueorange", domain=[-edge, edge], domainMid=0, reverse=True)


def _colour_scale(values: list[float]) -> Any:
    """Viridis from zero (to one, for shares); around zero where there are negative numbers."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low < 0:
        return signed_scale(max(-low, high))
    top = 1.0 if 0.5 <= high <= 1 + 1e-6 else high or 1.0
    return alt.Scale(scheme="viridis", domain=[0, top])


def _kinds(names: Iterable[str]) -> dict[str, str]:
    """The kinds that are there, each with its colour, the same in every chart; one that is not ours is grey."""
    present = set(names)
    ours = {said(kind): colour for kind, colour in KIND_COLOURS.items() if said(kind) in present}
    return {**ours, **dict.fromkeys(sorted(present - set(ours)), COLOURS[-1])}


def _series(names: list[str], drawn: Container[str]) -> Any:
    """A colour for each name, whatever is drawn, and a legend of those that are."""
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(names))]
    here = [name for name in names if name in drawn]
    some = {} if here == names else {"values": here}
    scale, legend = alt.Scale(domain=names, range=colours), alt.Legend(title=None, symbolOpacity=1, **some)
    return alt.Color(field="panel", type="nominal", scale=scale, legend=legend)
