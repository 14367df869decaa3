"""What the pages show of relevance: which heads, layers and kinds of token the prediction goes through."""

from collections.abc import Iterator

import altair as alt

from lorgnette.axes import CATEGORY, LAYER
from lorgnette.figures.cells import said
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.doubt import extreme_of, head_extreme, significantly_above
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import EXPLANATIONS, Compared, LensReport, Measure
from lorgnette.figures.sentences import NAMED, has, with_values
from lorgnette.figures.variables import titled_figures, variable_figure
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Json


def figures(result: Result) -> list[Figure]:
    by_head = variable_figure(result, "relevance", "Relevance of each head (share of its layer)")
    by_layer = titled_figures(result, {"layer_share": "Share of total relevance by layer"})
    return [by_head, *by_layer, *_token_bars(result)]


def _token_bars(result: Result) -> list[Figure]:
    frame = result.to_dataframe("token_share").dropna(subset=["token_share"])
    frame = frame[frame["token_share"] != 0]
    if not len(frame):
        return []
    rows = [
        {"kind": said(kind), "value": float(v)} for kind, v in frame[[CATEGORY, "token_share"]].itertuples(index=False)
    ]
    chart = alt.Chart(alt.Data(values=rows), width=300, height=alt.Step(20)).mark_bar(color=COLOURS[0]).encode(
        x=alt.X(field="value", type="quantitative", title="share of the relevance of all tokens (signed)"),
        y=alt.Y(field="kind", type="nominal", title=None, sort=None),
    )  # fmt: skip
    caption = "Categories overlap: punctuation can be the last token too. Negative: evidence against the prediction."
    return [Figure("token_share", "Relevance by category of token", caption, chart, frame.round(4), frame)]


def findings(result: Result) -> Iterator[Finding]:
    """The heads that carry most of their layer's relevance, and those that speak against the prediction."""
    carriers = heads(result.data["relevance"])
    if not carriers:
        return
    data = result.data
    best, names = head_extreme(data, "relevance")
    against = significantly_above(Estimate(-data["relevance"], data["relevance_se"], data["relevance_count"]), 0.0)
    numbers: Json = {
        "named": with_values(Estimate.of(data, "relevance"), carriers[:NAMED], data["relevance"], sign=""),
        "against": against,
        "heads": len(carriers),
    }
    negative = f"{{against}} of {{heads}} heads {has(against)}" if against else "No head has"
    first = f"; the first is{best.beside(names).removeprefix(',')}" if best.comparable else ""
    words = f"Heads with the largest share of their layer's relevance: {{named}}{first}. {negative} significantly "
    words += "negative mean relevance (false discovery rate 5 %)"
    share = data["layer_share"].dropna(LAYER)
    if share.sizes[LAYER] > 1:
        layers = [int(layer) for layer in share[LAYER].values]
        most = extreme_of(data.dropna(LAYER, subset=["layer_share"]), "layer_share", LAYER)
        numbers |= {"layer": layers[most.place], "share": most.value}
        words += "; layer {layer} carries {share:.0%} of total relevance"
        words += most.beside([f"layer {layer}" for layer in layers])
    yield Finding(f"{words}.", numbers)


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("relevance", "share of its layer's relevance", result.data["relevance"], "+.2f", rank=2)


REPORT = LensReport(
    title="Which heads carry the prediction",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(Compared("relevance", "relevance of a head"), Compared("layer_share", "relevance of a layer")),
    cards=cards,
    meaning=("method", "target"),
    rank=1,
)
