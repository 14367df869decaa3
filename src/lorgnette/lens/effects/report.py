"""What the pages show of effects: heads by what they add to the logit, directly and in all."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import xarray as xr

from lorgnette.axes import SIGNAL, TERM
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.doubt import difference
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, heads
from lorgnette.figures.lens_report import EXPLANATIONS, Compared, LensReport, Measure
from lorgnette.figures.sentences import has, over_texts, significant_heads
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery

_NAMES = {"by_gradient": "total, by gradient", "direct": "direct"}


def figures(result: Result) -> list[Figure]:
    first = {"direct": "Direct effect of each head on the logit", "total": "Total effect of each head on the logit"}
    rest = {"by_gradient": "Total effect by gradient", "feed_forward": "Direct effect of feed-forward parts"}
    compared = [_beside_total(result)] if "total" in result.data else []
    return [*titled_figures(result, first), *compared, *titled_figures(result, rest), _terms(result)]


def _beside_total(result: Result) -> Figure:
    """Every head as a point: what a cheap effect says of it, against its total effect."""
    frame = result.data[["total", *_NAMES]].to_dataframe().reset_index().dropna(subset=["total"])
    rows: list[dict[str, str | float]] = []
    for row in frame.itertuples(index=False):
        for name, words in _NAMES.items():
            value = float(getattr(row, name))
            if value == value:
                label = f"{row.stack} {row.layer}.{row.head}: {words} {value:.3g}, total {row.total:.3g}"
                rows.append({"total": float(row.total), "value": value, "effect": words, "label": label})
    scale = alt.Scale(domain=list(_NAMES.values()), range=list(COLOURS[:2]))
    chart = alt.Chart(alt.Data(values=rows), width=360, height=280).mark_point(filled=True, size=40, opacity=0.7)
    chart = chart.encode(
        x=alt.X(field="total", type="quantitative", title="total effect on the logit"),
        y=alt.Y(field="value", type="quantitative", title="direct effect, or effect by gradient"),
        color=alt.Color(field="effect", type="nominal", scale=scale, legend=alt.Legend(title=None, orient="top")),
        description=alt.Description(field="label", type="nominal"),
        tooltip=alt.Tooltip(field="label", type="nominal"),
    )
    caption = (
        f"Each head is drawn twice, measured against {_replacement(result)}. Its total effect exceeds the direct one "
        "where later layers pass on what it writes, and falls short of it where other heads stand in for it."
    )
    return Figure("beside_total", "Direct effect and gradient beside the total effect", caption, chart, frame, frame)


def _replacement(result: Result) -> str:
    return "its mean over the corpus" if result.data.attrs.get("ablation") == "mean" else "zero"


def _terms(result: Result) -> Figure:
    frame = result.to_dataframe("terms").dropna(subset=["terms"])
    rows = [{"term": str(t).replace("_", "-"), "value": float(v)}
            for t, v in frame[[TERM, "terms"]].itertuples(index=False)]  # fmt: skip
    chart = alt.Chart(alt.Data(values=rows), width=300, height=alt.Step(20)).mark_bar(color=COLOURS[0]).encode(
        x=alt.X(field="value", type="quantitative", title="part of the logit"),
        y=alt.Y(field="term", type="nominal", title=None, sort=None),
    )  # fmt: skip
    caption = (
        "Direct contributions, mean over texts; they add up to the logit. Heads are measured against "
        f"{_replacement(result)}. Remainder: the non-linearity of the output head."
    )
    return Figure("terms", "What the logit is the sum of", caption, chart, frame.round(4), frame)


def findings(result: Result) -> Iterator[Finding]:
    """How many heads have an effect, which have most, and whether the gradient and the direct effect rank alike."""
    data = result.data
    for name, words in (("direct", "direct effect"), ("total", "total effect")):
        cells = heads(abs(data[name])) if name in data else []
        if not cells or cells[0].value == 0:  # an encoder has no direct path to a translation
            continue
        found, sure = Estimate.of(data, name), _q(data, name) < LEVEL
        named, doubt = significant_heads(
            Estimate(abs(found.value), found.se, found.count), sure, found.value, data.get(f"{name}_top_q")
        )
        count = int(sure.sum())
        numbers = {"count": count, "heads": len(cells), "named": named}
        if not named:
            yield Finding(f"No head has a significant {words} on the logit{over_texts(found)}.", numbers, nothing=True)
            continue
        yield Finding(
            f"{{count}} of {{heads}} heads {has(count)} a significant {words} on the logit (false discovery rate 5 %); "
            f"the largest are those of {{named}}{doubt}.",
            numbers,
        )
    yield from _alike(data)


def _alike(data: xr.Dataset) -> Iterator[Finding]:
    if "alike" not in data:
        return
    found = {name: Estimate.of(data, "alike", {SIGNAL: name}) for name in _NAMES}
    if any(bool(one.value.isnull()) for one in found.values()):
        return
    numbers: dict[str, float] = {}
    for name, one in found.items():
        half = float(np.nan_to_num(one.half))
        numbers |= {
            name: float(one.value),
            f"{name}_low": float(one.value) - half,
            f"{name}_high": float(one.value) + half,
        }
    told = difference(data, "alike_difference", {}, found["by_gradient"], found["direct"]).significant()
    d = f".{decimals(*(float(one.half) for one in found.values()))}f"
    yield Finding(
        f"Within a text, the gradient ranks all heads like their total effects with ρ = {{by_gradient:{d}}} (95 % CI "
        f"{{by_gradient_low:{d}}} to {{by_gradient_high:{d}}}), the direct effect with {{direct:{d}}} "
        f"({{direct_low:{d}}} to {{direct_high:{d}}}){told}.",
        numbers,
    )


def _q(data: xr.Dataset, name: str) -> xr.DataArray:
    """p of each head's mean effect (t test over texts), corrected over the heads of the stack."""
    return false_discovery(Estimate.of(data, name).p)


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("direct effect", "what the head adds to the logit by itself", result.data["direct"], "+.3f")


REPORT = LensReport(
    title="What each head adds to the logit",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(Compared("direct", "direct effect"), Compared("total", "total effect")),
    cards=cards,
)
