"""What the pages show of importance: what the loss does without each head, and which heads it can do without."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import altair as alt
import xarray as xr

from lorgnette.axes import ABLATION, HEAD, LAYER, STACK
from lorgnette.figures.charts import COLOURS, NEGATIVE, POSITIVE, head_axis
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import PRUNING, Compared, LensReport, Measure
from lorgnette.figures.sentences import over_texts, significant_heads
from lorgnette.figures.variables import variable_figure
from lorgnette.lens.importance.lens import need
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery
from lorgnette.types import Chart

if TYPE_CHECKING:
    import pandas as pd

_CANDIDATES = 5  # heads that are named as the first to go
_ROOM = 8  # names of heads that do not lie over each other
_NEUTRAL, _NEEDED, _HARMFUL = "not significant", "removal raises the loss", "removal lowers the loss"


def replacement(result: Result) -> str | None:
    """What stood in for the heads: their mean if that was tried, or nothing; None if no head was taken away."""
    if "loss_change" not in result.data:
        return None
    tried = [how for how in ("mean", "zero") if how in result.data[ABLATION].values]
    return next((how for how in tried if bool(result.data["loss_change"].sel({ABLATION: how}).notnull().any())), None)


def changes(result: Result) -> Estimate | None:
    """How much the loss grows without each head."""
    how = replacement(result)
    return None if how is None else Estimate.of(result.data.sel({ABLATION: how}, drop=True), "loss_change")


def figures(result: Result) -> list[Figure]:
    drawn = []
    if replacement(result) is not None:
        drawn = [ranked(result), variable_figure(result, "loss_change", "Change in loss without the head")]
    return [*drawn, variable_figure(result, "sensitivity", "Sensitivity of the loss to each head (gradient by a gate)")]


def ranked(result: Result) -> Figure:
    """Every head with its 95 % interval, the ones that can go first."""
    measured = changes(result)
    assert measured is not None
    # Without an error (one text) nothing is significant.
    columns = {"loss_change": measured.value, "half": measured.half.fillna(0.0), "need": need(result)}
    columns["q"] = q_values(measured).fillna(1.0)
    frame = xr.Dataset(columns).to_dataframe().reset_index().dropna()
    frame = frame.sort_values(["need", LAYER, HEAD], kind="stable").reset_index(drop=True)
    several = STACK in frame and frame[STACK].nunique() > 1
    name = frame[LAYER].astype(str) + "." + frame[HEAD].astype(str)
    frame.insert(0, "which", (frame[STACK] + " " + name) if several else name)
    frame["low"], frame["high"] = frame.loss_change - frame.half, frame.loss_change + frame.half
    caption = (
        "Loss without the head minus loss with it, with its 95 % confidence interval over texts; colours at a false "
        "discovery rate of 5 %. Heads are ordered by how sensitive the loss is to a gate on them, as prune orders "
        "them. Heads can stand in for each other: if each of two can be removed, both together may not be."
    )
    table = frame.drop(columns="half").round(5)
    return Figure("order", "Heads by how much the loss depends on them", caption, _line(frame), table, frame, wide=True)


def _line(frame: "pd.DataFrame") -> Chart:
    """Heads in a line, each with its interval; those that are needed are named, as far as there is room."""
    rows = [
        {
            "place": place,
            "which": row.which,
            **{name: float(getattr(row, name)) for name in ("loss_change", "low", "high")},
            "kind": _NEUTRAL if row.q >= LEVEL else _NEEDED if row.loss_change > 0 else _HARMFUL,
            "label": f"head {row.which}: {row.loss_change:+.3g} ({row.low:+.3g} to {row.high:+.3g})",
        }
        for place, row in enumerate(frame.itertuples(index=False), 1)
    ]
    places = alt.Scale(domain=[0, len(rows) + 1], nice=False)
    words = "heads, from least to most needed"
    x = alt.X(field="place", type="quantitative", title=words, scale=places, axis=head_axis(frame["which"].tolist()))
    y = {
        name: alt.Y(field=name, type="quantitative", title="change in loss") for name in ("loss_change", "low", "high")
    }
    scale = alt.Scale(domain=[_NEUTRAL, _NEEDED, _HARMFUL], range=[COLOURS[-1], POSITIVE, NEGATIVE])
    colour = alt.Color(field="kind", type="nominal", scale=scale, legend=alt.Legend(title=None, orient="top"))
    base = alt.Chart(alt.Data(values=rows), width=720, height=200)
    zero = alt.Chart(alt.Data(values=[{"low": 0}])).mark_rule(opacity=0.4).encode(y=y["low"])
    bars = base.mark_rule(strokeWidth=1.5).encode(x=x, y=y["low"], y2=alt.Y2(field="high"), color=colour)
    label = alt.Description(field="label", type="nominal")
    dots = base.mark_point(filled=True, size=28, opacity=1).encode(
        x=x, y=y["loss_change"], color=colour, description=label
    )
    last = alt.Chart(alt.Data(values=[row for row in rows if row["kind"] == _NEEDED][-_ROOM:]))
    names = last.mark_text(dy=-9, fontSize=10).encode(x=x, y=y["high"], text=alt.Text(field="which", type="nominal"))
    return alt.layer(zero, bars, dots, names)


def findings(result: Result) -> Iterator[Finding]:
    """The heads that the loss misses most, and how many it does not miss."""
    measured = changes(result)
    if measured is None:
        return
    cells = heads(measured.value)
    needed = (q_values(measured) < LEVEL) & (measured.value > 0)
    named, doubt = significant_heads(measured, needed, q=_apart(result))
    numbers = {"count": int(needed.sum()), "heads": len(cells), "named": named}
    how = {"mean": "Mean-ablating", "zero": "Zero-ablating"}[str(replacement(result))]
    words = (
        f"{how} single heads raises the loss significantly for {{count}} of {{heads}} heads (false discovery rate 5 %)"
    )
    if named:
        yield Finding(f"{words}; the largest increases are those of {{named}}{doubt}.", numbers)
    else:
        words = f"{how} single heads raises the loss significantly for none of {{heads}} heads"
        yield Finding(f"{words}{over_texts(measured)}.", numbers, nothing=True)
    yield from candidates(need(result), needed)


def q_values(change: Estimate) -> xr.DataArray:
    """p-values of the changes adjusted for the false discovery rate over the heads of a stack; NaN without an error."""
    p: xr.DataArray = change.p
    stacks = p[STACK].values if STACK in p.dims else ()
    return xr.concat([false_discovery(p.sel({STACK: s})) for s in stacks], STACK) if len(stacks) else false_discovery(p)


def _apart(result: Result) -> xr.DataArray | None:
    """How sure it is that each head differs from the one whose removal costs most."""
    q = result.data.get("loss_change_top_q")
    return None if q is None else q.sel({ABLATION: replacement(result)}, drop=True)


def candidates(dependence: xr.DataArray, needed: xr.DataArray) -> Iterator[Finding]:
    """The heads whose removal has no significant cost, and which of them the loss depends on least."""
    free = heads(dependence.where(~needed))
    if not free:
        return
    named = ", ".join(f"{one.layer}.{one.head}" for one in reversed(free[-_CANDIDATES:]))
    words = "The loss depends least on {named} (by gradient; their order is not tested)."
    if len(free) < len(heads(dependence)):
        words = (
            "For the other {count} heads no significant increase was found, which does not show that the model can "
            "spare them. The loss depends least on {named} (by gradient; their order is not tested)."
        )
    yield Finding(words, {"count": len(free), "named": named})


def cards(result: Result) -> Iterator[Measure]:
    measured = changes(result)
    if measured is not None:
        yield Measure("importance", "increase of the loss without it", measured.value, "+.3f", rank=3)
    else:
        yield Measure(
            "importance", "sensitivity of the loss to a gate on the head", result.data["sensitivity"], ".3f", rank=3
        )


REPORT = LensReport(
    title="Which heads matter",
    chapter=PRUNING,
    figures=figures,
    findings=findings,
    compared=(
        Compared("loss_change", "increase of the loss without the head"),
        Compared("sensitivity", "sensitivity of the loss"),
    ),
    cards=cards,
    rank=2,
)
