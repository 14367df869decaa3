"""Charts and sentences about syntax: relations, trees, the trained combination, coreference."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import altair as alt

from lorgnette.axes import BASELINE, CANDIDATES, DECODING, FEATURES, HEAD, KIND, LAYER, PART, WAY
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, HeadValue, heads
from lorgnette.report.findings import findings_for
from lorgnette.report.sections import figures_for, variable_figure
from lorgnette.results import Result

if TYPE_CHECKING:
    import pandas as pd

_WAYS = {
    "to_head": "the dependent reads its head",
    "to_dependent": "the head reads the dependent",
    "read_by_head": "the head reads it more than others do",
}
_NAMED = 3


@figures_for("relations")
def of_relations(result: Result) -> list[Figure]:
    """The best head of each relation, chosen on one part and tested on the other, beside the best offset."""
    from lorgnette.lenses.relations.lens import best_heads

    table = best_heads(result)
    if not len(table):
        return [variable_figure(result, "accuracy", "Pairs found", relation="all", part="held_out")]
    title = "The best head for each relation, beside the best fixed offset"
    caption = (
        "Dot: share of held-out pairs found by the head that is best on the development part, with its 95 % interval. "
        "Stroke: the same for the best fixed offset."
    )
    panels = [_dots(table[table.way == way], words) for way, words in _WAYS.items()]
    chart = alt.concat(*panels, columns=3)
    figures = [Figure("best_heads", title, caption, chart, table.round(3), table, wide=True)]
    every = variable_figure(
        result, "accuracy", "All relations but punctuation, head by head", relation="all", part="held_out"
    )
    return [*figures, every]


def _dots(rows: "pd.DataFrame", title: str) -> Any:
    values = [
        {
            "relation": row.relation,
            "head": f"{row.layer}.{row.head}",
            **{name: float(getattr(row, name)) for name in ("accuracy", "low", "high", "baseline")},
        }
        for row in rows.itertuples()
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


@findings_for("relations")
def best_relations(result: Result) -> Iterator[Finding]:
    """For how many relations a head does better than the best offset, and where by most."""
    from lorgnette.lenses.relations.lens import best_heads

    table = best_heads(result)
    rows = table[(table.relation != "all") & (table.relation != "punct")] if len(table) else table
    if not len(rows):
        return
    best = rows.loc[rows.groupby("relation").development.idxmax()]
    ahead = best[best.low > best.baseline]
    top = best.assign(gain=best.accuracy - best.baseline).nlargest(_NAMED, "gain")
    named = ", ".join(
        f"{row.relation} {row.layer}.{row.head} ({row.accuracy:.0%} against {row.baseline:.0%})"
        for row in top.itertuples()
    )
    numbers = {"ahead": len(ahead), "relations": len(best), "named": named}
    yield Finding(
        "For {ahead} of {relations} dependency relations a head chosen on one half of the texts finds more pairs of "
        "the other half than the best fixed offset; by most: {named}.",
        numbers,
    )


@figures_for("trees")
def of_trees(result: Result) -> list[Figure]:
    data = result.data
    base = ", ".join(f"{name} {float(data.baseline_uas.sel({BASELINE: name})):.3f}" for name in data[BASELINE].values)
    maps = variable_figure(result, "uas", "Heads that are right in each head's best tree (UAS)")
    about = f"{maps.caption} Without looking: {base}."
    layers = variable_figure(result, "layer_uas", "The tree of the mean over heads, by layer")
    return [Figure(maps.name, maps.title, about, maps.chart, maps.table, maps.data, maps.wide), layers]


@findings_for("trees")
def best_trees(result: Result) -> Iterator[Finding]:
    """The heads with the best trees, beside the best positional baseline."""
    uas = result.data["uas"].sel({WAY: "to_head"})
    found = heads(uas)
    if not found:
        return
    above = [one for one in found if one.value > float(result.data.baseline_uas.sel({BASELINE: "head_is_next"}))]
    numbers = {
        "best": str(found[0]),
        "mean": float(uas.mean()),
        "next": float(result.data.baseline_uas.sel({BASELINE: "head_is_next"})),
        "random": float(result.data.baseline_uas.sel({BASELINE: "random_tree"})),
        "above": len(above),
        "heads": len(found),
    }
    yield Finding(
        "The best tree is that of head {best}; {above} of {heads} heads do better than hanging every word on the next "
        "one ({next:.2f}), the mean is {mean:.2f}, and random trees get {random:.2f} (UAS, root given).",
        numbers,
    )


@figures_for("attention-probe")
def of_probe(result: Result) -> list[Figure]:
    frame = result.to_dataframe("uas").dropna(subset=["uas"])
    if not len(frame):
        return [variable_figure(result, "weight", "Weight of each head in the combination")]
    values = [
        {"features": str(row[FEATURES]).replace("_", " + "), "decoding": str(row[DECODING]), "uas": float(row["uas"])}
        for row in frame.to_dict("records")
    ]
    chart = alt.Chart(alt.Data(values=values), width=260, height=alt.Step(18)).mark_bar()
    chart = chart.encode(
        x=alt.X(field="uas", type="quantitative", scale=alt.Scale(domain=[0, 1]), title="UAS, held-out texts"),
        y=alt.Y(field="features", type="nominal", title=None, sort=None),
        yOffset=alt.YOffset(field="decoding", type="nominal"),
        color=alt.Color(field="decoding", type="nominal", scale=alt.Scale(range=list(COLOURS[:2])), title=None),
    )
    following = float(result.data["head_is_next_uas"])
    caption = f"Trained on the development part, scored on held-out texts. The next word as head: {following:.3f}."
    return [
        Figure("uas", "All heads together as a parser", caption, chart, frame.round(3), frame),
        variable_figure(result, "weight", "Weight of each head in the combination"),
    ]


@findings_for("attention-probe")
def probed(result: Result) -> Iterator[Finding]:
    data = result.data
    uas = data["uas"].sel({FEATURES: "attention", DECODING: "argmax"})
    if bool(uas.isnull()):
        return
    numbers = {"uas": float(uas), "next": float(data["head_is_next_uas"])}
    yield Finding(
        "A trained combination of all heads finds {uas:.0%} of the heads of held-out words; the next word is right in "
        "{next:.0%}.",
        numbers,
    )


@figures_for("coreference")
def of_coreference(result: Result) -> list[Figure]:
    from lorgnette.lenses.coreference.lens import best_antecedents

    rules = result.data["baseline_accuracy"].sel({KIND: "all", PART: "held_out"})
    base = ", ".join(f"{name} {float(rules.sel({BASELINE: name})):.3f}" for name in rules[BASELINE].values)
    title = "Mentions whose head word reads an antecedent most"
    figure = variable_figure(result, "accuracy", title, kind="all", part="held_out")
    table = best_antecedents(result)
    about = f"{figure.caption} Held-out texts. Without looking: {base}."
    shown = table.round(3) if len(table) else figure.table
    return [Figure("accuracy", title, about, figure.chart, shown, figure.data, figure.wide)]


@findings_for("coreference")
def antecedents(result: Result) -> Iterator[Finding]:
    """The head that finds most antecedents, chosen on one part and tested on the other."""
    data = result.data
    cells = data["accuracy"].sel({KIND: "all", CANDIDATES: "mentions"})
    early, late = (cells.sel({PART: part}) for part in ("development", "held_out"))
    found = heads(early)
    if not found or bool(late.isnull().all()):
        return
    best = found[0]
    value = float(late.sel({LAYER: best.layer, HEAD: best.head}))
    rules = data["baseline_accuracy"].sel({KIND: "all", PART: "held_out"})
    numbers: dict[str, Any] = {"best": str(HeadValue(best.layer, best.head, value))}
    numbers |= {name: float(rules.sel({BASELINE: name})) for name in ("nearest", "head_match")}
    yield Finding(
        "Head {best} reads the antecedent of a mention most often, on texts it was not chosen on; the nearest mention "
        "is right in {nearest:.0%}, the same word in {head_match:.0%}.",
        numbers,
    )
