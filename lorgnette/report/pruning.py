"""What to prune: heads in the order in which the loss can do without them, one at a time."""

import altair as alt
import xarray as xr

from lorgnette.axes import ABLATION, HEAD, LAYER, STACK
from lorgnette.report.charts import COLOURS
from lorgnette.report.findings import Finding, heads
from lorgnette.report.sections import Figure
from lorgnette.results import Result

_NAMED = 5
_SURE = 1.96


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
    frame.insert(0, "name", (frame[STACK] + " " + name) if several else name)
    frame["low"], frame["high"] = frame.loss_change - _SURE * frame.se, frame.loss_change + _SURE * frame.se
    rows = [
        {"place": place, "name": row.name_, "value": row.loss_change, "low": row.low, "high": row.high,
         "kind": "surely needed" if row.low > 0 else "surely in the way" if row.high < 0 else "could go",
         "label": f"head {row.name_}: {row.loss_change:+.3g} ({row.low:+.3g} to {row.high:+.3g})"}
        for place, row in enumerate(frame.rename(columns={"name": "name_"}).itertuples(index=False), 1)
    ]  # fmt: skip
    places = alt.Scale(domain=[0, len(rows) + 1])
    whole = alt.Axis(grid=False, tickMinStep=1, format="d")
    words = "heads, in the order in which they could go"
    x = alt.X(field="place", type="quantitative", title=words, scale=places, axis=whole)
    title = "change of the loss"
    kinds = ["could go", "surely needed", "surely in the way"]
    scale = alt.Scale(domain=kinds, range=[COLOURS[-1], COLOURS[0], COLOURS[3]])
    colour = alt.Color(field="kind", type="nominal", scale=scale, legend=alt.Legend(title=None, orient="top"))
    base = alt.Chart(alt.Data(values=rows), width=720, height=200)
    zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(opacity=0.4)
    bars = base.mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y(field="low", type="quantitative", title=title), y2=alt.Y2(field="high"), color=colour
    )
    dots = base.mark_point(filled=True, size=28, opacity=1).encode(
        x=x, y=alt.Y(field="value", type="quantitative", title=title), color=colour,
        description=alt.Description(field="label", type="nominal"),
    )  # fmt: skip
    layers = [zero.encode(y=alt.Y(field="y", type="quantitative", title=title)), bars, dots]
    # So many names can be read; more would lie over each other.
    last = [row for row in rows if row["kind"] == "surely needed"][-8:]
    if last:
        names = alt.Chart(alt.Data(values=last)).mark_text(dy=-9, fontSize=10).encode(
            x=x, y=alt.Y(field="high", type="quantitative", title=title), text=alt.Text(field="name", type="nominal")
        )  # fmt: skip
        layers.append(names)
    caption = (
        "The loss without the head less the loss with it, 95 % interval over texts. Heads stand in for each other: "
        "those that could go one at a time need not be able to go together."
    )
    table = frame.drop(columns="se").round(5)
    return [Figure("order", "In which order heads could go", caption, alt.layer(*layers), table, frame, wide=True)]


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
