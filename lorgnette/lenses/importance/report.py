"""What the pages show of importance: what the loss does without each head, and which heads it can do without."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import altair as alt
import xarray as xr

from lorgnette.axes import ABLATION, HEAD, LAYER, STACK
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import PRUNING, Compared, LensReport, Measure
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import variable_figure
from lorgnette.lenses.importance.order import need
from lorgnette.results import Result

if TYPE_CHECKING:
    import pandas as pd

_CANDIDATES = 5  # heads that are named as the first to go
_Z = 1.96
_ROOM = 8  # names of heads that do not lie over each other
_COULD_GO, _NEEDED, _IN_THE_WAY = "could go", "surely needed", "surely in the way"


def replacement(result: Result) -> str | None:
    """What stood in for the heads: their mean if that was tried, or nothing; None if no head was taken away."""
    if "loss_change" not in result.data:
        return None
    tried = [how for how in ("mean", "zero") if how in result.data[ABLATION].values]
    return next((how for how in tried if bool(result.data["loss_change"].sel({ABLATION: how}).notnull().any())), None)


def changes(result: Result) -> tuple[xr.DataArray, xr.DataArray] | None:
    """How much the loss grows without each head, and the standard error of that."""
    how = replacement(result)
    if how is None:
        return None
    change, error = (result.data[name].sel({ABLATION: how}, drop=True) for name in ("loss_change", "loss_change_se"))
    return change, error


def figures(result: Result) -> list[Figure]:
    drawn = []
    if replacement(result) is not None:
        drawn = [ranked(result), variable_figure(result, "loss_change", "What the loss does without the head")]
    return [*drawn, variable_figure(result, "sensitivity", "How steeply the loss depends on the head")]


def ranked(result: Result) -> Figure:
    """Every head with its 95 % interval, the ones that can go first."""
    measured = changes(result)
    assert measured is not None
    change, error = measured
    columns = {"loss_change": change, "se": error.fillna(0.0), "need": need(result)}
    frame = xr.Dataset(columns).to_dataframe().reset_index().dropna()
    frame = frame.sort_values(["need", LAYER, HEAD], kind="stable").reset_index(drop=True)
    several = STACK in frame and frame[STACK].nunique() > 1
    name = frame[LAYER].astype(str) + "." + frame[HEAD].astype(str)
    frame.insert(0, "which", (frame[STACK] + " " + name) if several else name)
    frame["low"], frame["high"] = frame.loss_change - _Z * frame.se, frame.loss_change + _Z * frame.se
    caption = (
        "The loss without the head minus the loss with it, 95 % interval over texts; heads by how much the loss "
        "depends on them (mean |∂loss/∂ξ|), which is the order in which `prune` removes them. Heads stand in for each "
        "other: those that can be ablated one at a time need not be able to go together."
    )
    table = frame.drop(columns="se").round(5)
    return Figure("order", "In which order heads could go", caption, _line(frame), table, frame, wide=True)


def _line(frame: "pd.DataFrame") -> Any:
    """Heads in a line, each with its interval; those that are surely needed are named, as far as there is room."""
    rows = [
        {
            "place": place,
            "which": row.which,
            **{name: float(getattr(row, name)) for name in ("loss_change", "low", "high")},
            "kind": _NEEDED if row.low > 0 else _IN_THE_WAY if row.high < 0 else _COULD_GO,
            "label": f"head {row.which}: {row.loss_change:+.3g} ({row.low:+.3g} to {row.high:+.3g})",
        }
        for place, row in enumerate(frame.itertuples(index=False), 1)
    ]
    places = alt.Scale(domain=[0, len(rows) + 1])
    whole = alt.Axis(grid=False, tickMinStep=1, format="d")
    words = "heads, in the order in which they could go"
    x = alt.X(field="place", type="quantitative", title=words, scale=places, axis=whole)
    y = {
        name: alt.Y(field=name, type="quantitative", title="change of the loss")
        for name in ("loss_change", "low", "high")
    }
    scale = alt.Scale(domain=[_COULD_GO, _NEEDED, _IN_THE_WAY], range=[COLOURS[-1], COLOURS[0], COLOURS[3]])
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
    change, error = measured
    cells = heads(change)
    what = {"mean": "its mean", "zero": "nothing"}[str(replacement(result))]
    named = ", ".join(f"{one.layer}.{one.head} ({one.value:+.2g})" for one in cells[:NAMED])
    numbers = {"count": int((change > _Z * error).sum()), "heads": len(cells), "named": named}
    yield Finding(
        f"With {what} in the place of one head, the loss surely grows for {{count}} of {{heads}} heads; "
        "it grows most without {named}.",
        numbers,
    )
    yield candidates(result, change, error)


def candidates(result: Result, change: xr.DataArray, error: xr.DataArray) -> Finding:
    """How many heads the loss would not surely miss, and which it depends on least."""
    free = heads(need(result).where(change - _Z * error.fillna(0.0) <= 0))
    if not free:
        return Finding("No head could go: without any one of them the loss surely grows.")
    named = ", ".join(f"{one.layer}.{one.head}" for one in reversed(free[-_CANDIDATES:]))
    numbers = {"count": len(free), "heads": len(heads(change)), "named": named}
    return Finding(
        "{count} of {heads} heads could go one at a time: without them the loss does not surely grow. First in line: "
        "{named}.",
        numbers,
    )


def cards(result: Result) -> Iterator[Measure]:
    measured = changes(result)
    if measured is not None:
        yield Measure("importance", "growth of the loss without it", measured[0], "+.3f", rank=3)
    else:
        yield Measure("importance", "|∂loss/∂gate|", result.data["sensitivity"], ".3f", rank=3)


REPORT = LensReport(
    title="Does the head matter?",
    chapter=PRUNING,
    figures=figures,
    findings=findings,
    compared=(Compared("loss_change", "growth of the loss without the head"), Compared("sensitivity")),
    cards=cards,
)
