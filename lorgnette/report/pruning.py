"""What to prune: heads in the order in which the loss can do without them, one at a time."""

from typing import TYPE_CHECKING, Any

import altair as alt
import xarray as xr

from lorgnette.axes import ABLATION, HEAD, LAYER, STACK
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.results import Result

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 5
_SURE = 1.96
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


def ranked(result: Result) -> list[Figure]:
    """Every head with its 95 % interval, the ones that can go first."""
    found = changes(result)
    if found is None:
        return []
    frame = xr.Dataset({"loss_change": found[0], "se": found[1].fillna(0.0)}).to_dataframe().reset_index().dropna()
    frame = frame.sort_values(["loss_change", LAYER, HEAD], kind="stable").reset_index(drop=True)
    several = STACK in frame and frame[STACK].nunique() > 1
    name = frame[LAYER].astype(str) + "." + frame[HEAD].astype(str)
    frame.insert(0, "which", (frame[STACK] + " " + name) if several else name)
    frame["low"], frame["high"] = frame.loss_change - _SURE * frame.se, frame.loss_change + _SURE * frame.se
    caption = (
        "The loss without the head less the loss with it, 95 % interval over texts. Heads stand in for each other: "
        "those that could go one at a time need not be able to go together."
    )
    table = frame.drop(columns="se").round(5)
    return [Figure("order", "In which order heads could go", caption, _line(frame), table, frame, wide=True)]


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


def candidates(result: Result) -> Finding | None:
    """How many heads the loss would not surely miss, and which it misses least."""
    found = changes(result)
    if found is None:
        return None
    change, error = found
    low = change - _SURE * error.fillna(0.0)
    free = heads(change.where(low <= 0))
    if not free:
        return Finding("No head could go: without any one of them the loss surely grows.")
    named = ", ".join(f"{one.layer}.{one.head}" for one in reversed(free[-_NAMED:]))
    numbers = {"count": len(free), "heads": len(heads(change)), "named": named}
    return Finding(
        "{count} of {heads} heads could go one at a time: without them the loss does not surely grow. First in line: "
        "{named}.",
        numbers,
    )
