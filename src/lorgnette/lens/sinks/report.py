"""What the pages show of sinks: how many heads have one, where, and what it sends."""

from collections.abc import Iterable, Iterator

import altair as alt
import numpy as np
import xarray as xr

from lorgnette.axes import CATEGORY, CHANGE, HEAD, LAYER, STACK, THRESHOLD
from lorgnette.figures.cells import said, table
from lorgnette.figures.charts import COLOURS, KIND_COLOURS, heat_map, percent_axis
from lorgnette.figures.doubt import difference, extreme, significantly_above
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import HALF, Finding, decimals, heads
from lorgnette.figures.lens_report import READING, Compared, LensReport, Measure
from lorgnette.figures.sentences import has, the_category
from lorgnette.figures.variables import figure_per_variable, titled_figures
from lorgnette.lens.sinks.kinds import KINDS, candidates
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Chart, Json

_ANY = "any token"
_LINES = {_ANY: "#444444", **{said(kind): KIND_COLOURS.get(kind, COLOURS[0]) for kind in KINDS}}
"""The opening token and, where none opens a text, the first one have the same colour: texts have one of them."""


def _narrow(result: Result) -> Result:
    """The numbers at the threshold that the rest of the page uses, or at the nearest one."""
    threshold = result.data.attrs["threshold"]
    chosen = min(result.data[THRESHOLD].values.tolist(), key=lambda each: abs(each - threshold))
    return Result(result.lens, result.data.sel({THRESHOLD: chosen}), result.provenance)


def figures(result: Result) -> list[Figure]:
    titles = {
        "arrives": "Share of the output norm that the sink contributes",
        "activation_ratio": "Largest activation of the sink over that of a typical token",
    }
    if "rate" not in result.data:
        return figure_per_variable(result)
    return [_rates(result), *titled_figures(_narrow(result), titles)]


def _rates(result: Result) -> Figure:
    """Which heads have a sink at the threshold, and how the rate falls if a sink must receive more."""
    narrow = _narrow(result)
    threshold = float(narrow.data[THRESHOLD])
    there = result.data["rate"].notnull().any([dim for dim in result.data["rate"].dims if dim != STACK])
    stacks = there[STACK].values[there.values].tolist()
    curves = {stack: _by_threshold(result.data["rate"].sel({STACK: stack})) for stack in stacks}
    kinds = {row["kind"]: None for rows in curves.values() for row in rows}
    chart: Chart = heat_map(narrow, "rate", category="all")
    if len(stacks) == 1:
        beside = alt.hconcat(chart, _curves(curves[stacks[0]], kinds, threshold, 260), spacing=40)
        chart = beside.resolve_scale(color="independent")
    elif stacks:
        panels = [_curves(rows, kinds, threshold, 180).properties(title=stack) for stack, rows in curves.items()]
        chart = alt.vconcat(chart, alt.hconcat(*panels), spacing=30).resolve_scale(color="independent")
    places = ("left", "right") if len(stacks) == 1 else ("above", "below")
    at = f"{threshold:.0%}".replace("%", " %")
    caption = (
        f"{places[0].capitalize()}: the share of texts in which one token receives more than {at} of the head's "
        f"weight. {places[1].capitalize()}: the same for other thresholds, by kind of token, mean over heads; the "
        f"dashed line marks {at}."
    )
    numbers = table(narrow.data["rate"]), result.to_dataframe("rate")
    return Figure("rate", "How often one token takes much of the weight", caption, chart, *numbers, wide=True)


def _by_threshold(rate: xr.DataArray) -> list[Json]:
    """The rate of each kind of token, mean over the heads of a stack, at every threshold."""
    mean = rate.mean([LAYER, HEAD])
    kinds = candidates({kind: float(mean.sel({CATEGORY: kind}).mean()) for kind in KINDS})
    rows: list[Json] = []
    for kind in ("all", *kinds):
        name = _ANY if kind == "all" else said(kind)
        for cell in mean.sel({CATEGORY: kind}).dropna(THRESHOLD):
            at = float(cell[THRESHOLD])
            label = f"{name}, threshold {at:g}: {cell.item():.3f}"
            rows.append({"threshold": at, "rate": cell.item(), "kind": name, "label": label})
    return rows


def _curves(rows: list[Json], kinds: Iterable[str], threshold: float, width: int) -> Chart:
    scale = alt.Scale(domain=[name for name in _LINES if name in kinds],
                      range=[colour for name, colour in _LINES.items() if name in kinds])  # fmt: skip
    shares: Json = {"type": "quantitative", "axis": percent_axis(), "scale": alt.Scale(domain=[0, 1])}
    x = alt.X(field="threshold", title="threshold: share of the weight", **shares)
    lines = alt.Chart(alt.Data(values=rows), width=width, height=180).encode(
        x=x,
        y=alt.Y(field="rate", title="share of texts with a sink", **shares),
        color=alt.Color(field="kind", type="nominal", title=None, scale=scale),
        description=alt.Description(field="label", type="nominal"),
    )
    rule = alt.Chart(alt.Data(values=[{"threshold": threshold}])).mark_rule(strokeDash=[4, 3]).encode(x=x)
    return alt.layer(rule, lines.mark_line(strokeWidth=2), lines.mark_point(filled=True, size=40, opacity=1))


def findings(result: Result) -> Iterator[Finding]:
    data = _narrow(result).data
    rate = data["rate"]
    over = heads(rate.sel({CATEGORY: "all"}))
    if not over:
        return
    threshold = float(data[THRESHOLD])
    with_sink = [head for head in over if head.value > HALF]
    numbers = {"count": len(with_sink), "heads": len(over), "threshold": threshold}
    numbers["sure"] = significantly_above(Estimate.of(data, "rate", {CATEGORY: "all"}), HALF)
    sink = "a sink in most texts: one token that receives more than {threshold:.0%} of the head's weight"
    if not with_sink:
        yield Finding(f"None of {{heads}} heads has {sink}.", numbers, nothing=True)
        return
    yield Finding(
        f"{{count}} of {{heads}} heads {has(len(with_sink))} {sink}; {{sure}} of them significantly in more than half "
        "(false discovery rate 5 %).",
        numbers,
    )
    has_sink = rate.sel({CATEGORY: "all"}, drop=True) > HALF
    of_heads = [str(name) for name, array in data.data_vars.items() if HEAD in array.dims]
    yield from _of_these(data.assign(data[of_heads].where(has_sink)), len(with_sink))
    yield from _without(result)


def _of_these(data: xr.Dataset, count: int) -> Iterator[Finding]:
    """Which token it is and what it contributes, in the heads that have a sink in most texts."""
    rate, these = data["rate"], "this head" if count == 1 else "these {heads} heads"
    kinds = candidates({kind: float(rate.sel({CATEGORY: kind}).mean()) for kind in KINDS})
    means = [float(rate.sel({CATEGORY: kind}).mean()) for kind in kinds]
    errors = [float(data["rate_se"].sel({CATEGORY: kind}).mean()) for kind in kinds]
    texts = [float(data["rate_count"].sel({CATEGORY: kind}).max()) for kind in kinds]
    q = data["kind_top_q"].sel({CATEGORY: kinds}).values if "kind_top_q" in data else None
    most = extreme(Estimate(np.array(means), np.array(errors), np.array(texts)), q=q)
    doubt = most.beside([the_category(kind) for kind in kinds])
    numbers = {"heads": count, "kind": the_category(kinds[most.place]), "rate": most.value}
    yield Finding(f"In {these}, the sink is most often {{kind}} (in {{rate:.0%}} of texts{doubt}).", numbers)
    arrives = float(data["arrives"].mean())
    if arrives == arrives:
        words = f"In {these}, the sink contributes {{share:.0%}} of the summed norms ‖αf(x)‖."
        yield Finding(words, {"heads": count, "share": arrives})


def _without(result: Result) -> Iterator[Finding]:
    if "loss_change" not in result.data:
        return
    for what, words in (("value", "Zeroing the values"), ("key", "Masking the keys")):
        numbers = {"loss": float(result.data["loss"])}
        found = {whose: Estimate.of(result.data, "loss_change", {CHANGE: f"{whose}_{what}"})
                 for whose in ("sink", "middle")}  # fmt: skip
        for whose, one in found.items():
            numbers |= {whose: float(one.value), f"{whose}_half": float(one.half)}
        told = difference(result.data, f"{what}_difference", {}, found["sink"], found["middle"]).significant()
        d = f".{decimals(*(float(one.half) for one in found.values()), least=3)}f"
        yield Finding(
            f"{words} of the sinks changes the loss by {{sink:+{d}}} ± {{sink_half:{d}}} (intact: {{loss:.3f}}), of "
            f"the middle token by {{middle:+{d}}} ± {{middle_half:{d}}} (95 % CI over texts){told}.",
            numbers,
        )


def cards(result: Result) -> Iterator[Measure]:
    rate = _narrow(result).data["rate"].sel({CATEGORY: "all"})
    yield Measure("sink rate", "share of texts in which one token receives most of the weight", rate)


REPORT = LensReport(
    title="Attention sinks",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(
        Compared("rate", "sink rate", select={CATEGORY: ("all",)}),
        Compared("arrives", "share of the output norm from the sink"),
    ),
    cards=cards,
    meaning=("threshold",),
)
