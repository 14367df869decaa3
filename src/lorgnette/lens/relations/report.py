"""What the pages show of dependency relations: the best head for each, beside the best fixed offset."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import altair as alt

from lorgnette.axes import PART, RELATION
from lorgnette.figures.cells import said
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import variable_figure
from lorgnette.lens.relations.lens import best_heads
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery
from lorgnette.syntax.relations import WAYS
from lorgnette.types import Chart, Row

if TYPE_CHECKING:
    import pandas as pd


def figures(result: Result) -> list[Figure]:
    """The best head of each relation, chosen on one part and tested on the other, beside the best offset."""
    table = best_heads(result)
    if not len(table):
        return [variable_figure(result, "accuracy", "Share of pairs found", relation="all", part="held_out")]
    title = "The best head for each relation, and the best fixed offset"
    caption = (
        "Dot: share of held-out pairs found by the head that is best on the development half, with its 95 % confidence "
        "interval. Tick: the same for the best fixed offset."
    )
    panels = [_dots(table[table.way == way], said(way)) for way in WAYS]
    best = Figure("best_heads", title, caption, alt.concat(*panels, columns=3), table.round(3), table, wide=True)
    title = "All relations except punctuation, by head"
    return [best, variable_figure(result, "accuracy", title, relation="all", part="held_out")]


def _dots(rows: "pd.DataFrame", title: str) -> Chart:
    values = [
        {
            "relation": row.relation,
            "head": f"{row.layer}.{row.head}",
            **{name: float(getattr(row, name)) for name in ("accuracy", "low", "high", "baseline")},
        }
        for row in rows.assign(low=rows.low.fillna(rows.accuracy), high=rows.high.fillna(rows.accuracy)).itertuples()
    ]
    order = [row["relation"] for row in values]
    y = alt.Y(field="relation", type="nominal", sort=order, title=None)
    base = alt.Chart(alt.Data(values=values), width=200, height=alt.Step(16), title=title)
    x = alt.X(field="accuracy", type="quantitative", scale=alt.Scale(domain=[0, 1]), title="share of pairs found")
    offset = base.mark_tick(color=COLOURS[1], thickness=3).encode(
        x=alt.X(field="baseline", type="quantitative", scale=alt.Scale(domain=[0, 1])), y=y
    )
    interval = base.mark_rule(color=COLOURS[0]).encode(
        x=alt.X(field="low", type="quantitative"), x2=alt.X2(field="high"), y=y
    )
    return alt.layer(offset, interval, base.mark_point(filled=True, size=45, color=COLOURS[0]).encode(x=x, y=y))


def findings(result: Result) -> Iterator[Finding]:
    """For how many relations a head does better than the best offset, and where by most."""
    table = best_heads(result)
    rows = table[(table.relation != "all") & (table.relation != "punct")] if len(table) else table
    if not len(rows):
        return
    best = rows.loc[rows.groupby("relation").development.idxmax()]
    head, offset = (
        Estimate(*(best[name].to_numpy(dtype=float) for name in names))
        for names in (("accuracy", "se", "texts"), ("baseline", "baseline_se", "texts"))
    )
    paired = "gain_se" in best
    gain = head.minus_paired(offset, best.gain_se.to_numpy()) if paired else head.minus_correlated(offset)
    ahead = best[(gain.value > 0) & (false_discovery(gain.p) < LEVEL)]
    top = best.assign(gain=gain.value, half=gain.half).loc[ahead.index].nlargest(NAMED, "gain")
    named = ", ".join(map(_gain, top.to_dict("records")))
    words = (
        "For {ahead} of {relations} dependency relations, a head chosen on one half of the texts finds significantly "
        "more pairs in the other half than the best fixed offset (false discovery rate 5 %)"
    )
    numbers = {"ahead": len(ahead), "relations": len(best), "named": named}
    yield Finding(words + (". Largest gains (their order is not tested): {named}." if named else "."), numbers)


def _gain(row: Row) -> str:
    """A relation with its head, in as many decimals as it takes to see that it finds more."""
    form = f".{decimals(row['half'])}f"
    shares = f"{row['accuracy']:{form}} against {row['baseline']:{form}}"
    return f"{row['relation']} {row['layer']}.{row['head']} ({shares}, n = {row['pairs']:,})"


REPORT = LensReport(
    title="Which heads track dependency relations",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(Compared("accuracy", "share of pairs found", select={RELATION: ("all",), PART: ("held_out",)}),),
)
