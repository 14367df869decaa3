"""What the pages show of sources: which signal finds what the answer uses, the heads that do, and prompts by part."""

from collections.abc import Iterator, Mapping, Sequence

import altair as alt
import numpy as np

from lorgnette.axes import HEAD, LAYER, MEASURE, SIGNAL, SIGNAL_B, SOURCE
from lorgnette.explaining.sources.measuring import rests
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads, written
from lorgnette.figures.lens_report import EXPLANATIONS, LensReport, Measure
from lorgnette.figures.prompt_parts import PANELS, part_bars
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import variable_figure
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate
from lorgnette.texts.readable import readable
from lorgnette.types import Chart

BLIND = ("length", "recency")
"""Baselines that do not look at the model."""
PROMPTS = "prompts"
"""Attribute of the result: of each prompt its answer, log P, and the part that begins the text."""
SHOWN = 4
"""Prompts that are drawn part by part."""
_TITLES = {"agreement": "rank agreement with deletion (ρ)", "found": "share of prompts in which it is first"}


def figures(result: Result) -> list[Figure]:
    drawn = [_by_signal(result)] if int(result.data["agreement_count"].max()) else []
    if int(result.data["head_agreement_count"].max()):
        drawn.append(variable_figure(result, "head_agreement", "Heads: rank agreement with deletion"))
    return [*drawn, *_prompts(result)]


def _by_signal(result: Result) -> Figure:
    panels = []
    for name, title in _TITLES.items():
        chance = float(result.data["chance"]) if name == "found" else 0.0
        panels.append(_dots(list(_intervals(result, name)), title, chance))
    caption = (
        "Means over prompts in which a source matters, with 95 % intervals; grey: baselines that do not look at the "
        "model. The dashed line is what a random ranking has."
    )
    frame = result.to_dataframe("agreement").dropna(subset=["agreement"])
    title = "Which signal finds the source that the answer uses"
    return Figure("agreement", title, caption, alt.hconcat(*panels), frame.round(3), frame, wide=True)


def _intervals(result: Result, name: str) -> Iterator[dict[str, str | float]]:
    """Mean and interval of each signal: of a correlation by t, of a share by Wilson."""
    for signal in result.data[SIGNAL].values.tolist():
        mean = _estimate(result, name, signal)
        if mean.value != mean.value:
            continue
        low, high = interval(mean, share=name != "agreement")
        kind = "blind" if signal in BLIND else "looks"
        label = f"{signal}: {mean.value:.2f} ({low:.2f} to {high:.2f})"
        yield {"signal": signal, "kind": kind, "label": label, "mean": mean.value, "low": low, "high": high}


def interval(mean: Estimate, *, share: bool) -> tuple[float, float]:
    """95 %: Wilson's for a share, else by t and within −1 and 1; the value itself where one prompt has no error."""
    low, high = mean.wilson(int(mean.count)) if share else mean.interval
    if low != low:
        return float(mean.value), float(mean.value)
    return (low, high) if share else (max(-1.0, low), min(1.0, high))


def _estimate(result: Result, name: str, signal: str) -> Estimate:
    found = Estimate.of(result.data, name, {SIGNAL: signal})
    return Estimate(float(found.value), float(found.se), float(found.count))


def _dots(rows: Sequence[Mapping[str, str | float]], title: str, chance: float) -> Chart:
    order = [row["signal"] for row in rows]
    y = alt.Y(field="signal", type="nominal", sort=order, title=None)
    scale = alt.Scale(domain=["looks", "blind"], range=[COLOURS[0], COLOURS[-1]])
    colour = alt.Color(field="kind", type="nominal", scale=scale, legend=None)
    base = alt.Chart(alt.Data(values=list(rows)), width=260, height=alt.Step(22), title=title)
    rule = alt.Chart(alt.Data(values=[{"x": chance}])).mark_rule(strokeDash=[3, 3], opacity=0.5)
    x = alt.X(field="low", type="quantitative", title=None)
    bars = base.mark_rule().encode(x=x, x2=alt.X2(field="high"), y=y, color=colour)
    dots = base.mark_point(filled=True, size=50, opacity=1).encode(
        x=alt.X(field="mean", type="quantitative", title=None),
        y=y,
        color=colour,
        description=alt.Description(field="label", type="nominal"),
    )
    return alt.layer(rule.encode(x=alt.X(field="x", type="quantitative")), bars, dots)


def _prompts(result: Result) -> Iterator[Figure]:
    """The first prompts, part by part."""
    frame = result.data[["tokens", "compared", *PANELS]].to_dataframe().reset_index()
    frame["prompt"], frame["part"] = zip(*(label.rsplit(": ", 1) for label in frame[SOURCE]), strict=True)
    for name in list(dict.fromkeys(frame["prompt"]))[:SHOWN]:
        own = frame[frame["prompt"] == name]
        sources = own[own["compared"] == 1]
        best = sources.loc[sources["drop"].idxmax()]
        first = str(best["part"]) if best["drop"] >= float(result.data.attrs["matters"]) else None
        rows = [{str(key): value for key, value in row.items()} for row in own.to_dict("records")]
        about = result.data.attrs[PROMPTS][str(name)]
        whole, none = (written(float(about[key]), ".2f") for key in ("log_probability", "without_any"))
        caption = (
            f"The answer {readable(about['answer'])!r}: log P {whole} nats, {none} without any source. Orange: the "
            "source without which it loses most, if it is then at most half as likely."
        )
        caption += "" if about["beginning"] is None else f" {rests(about['beginning'])}"
        table = own[["part", "tokens", *PANELS]].round(3)
        yield Figure(f"prompt-{name}", f"Prompt {name}, part by part", caption, part_bars(rows, first), table, own,
                     wide=True)  # fmt: skip


def findings(result: Result) -> Iterator[Finding]:
    """How often a source matters, which signal ranks sources as deletion does, and at which heads."""
    data = result.data
    prompts = int(data["matters_count"])
    used = round(float(data["matters"]) * prompts)
    if prompts == 1:
        yield from _of_one_prompt(result, used)
        return
    words = "In {used} of {prompts} prompts the answer is at most half as likely without one of the sources"
    if not used:
        yield Finding(f"{words}: nothing shows that an answer uses any one of them.",
                      {"used": used, "prompts": prompts})  # fmt: skip
        return
    drop = float(data["largest_drop"])
    numbers = {"used": used, "prompts": prompts, "drop": drop}
    yield Finding(f"{words}; the largest drop of a prompt is {{drop:.2f}} nats on average.", numbers)
    yield from _signals(result, used)
    yield from _heads(result)


def _of_one_prompt(result: Result, used: int) -> Iterator[Finding]:
    """One prompt has no interval and no test: only what was seen in it."""
    if not used:
        yield Finding("Without any one of the sources, the answer stays more than half as likely: nothing shows that "
                      "it uses one of them.", {})  # fmt: skip
        return
    yield Finding(
        "Without one of the sources the answer is at most half as likely: "
        "its log-probability falls by {drop:.2f} nats.",
        {"drop": float(result.data["largest_drop"])},
    )
    found = {str(name): _estimate(result, "found", name).value for name in result.data[SIGNAL].values.tolist()}
    right = ", ".join(name for name, share in found.items() if name not in BLIND and share == 1)
    wrong = ", ".join(name for name, share in found.items() if name not in BLIND and share == 0)
    both = "; another one is ranked first by {wrong}" if wrong else ""
    if right:
        yield Finding(f"That source is ranked first by {{right}}{both}.", {"right": right, "wrong": wrong})
    elif wrong:
        yield Finding("None of {wrong} ranks that source first.", {"wrong": wrong})


def _signals(result: Result, used: int) -> Iterator[Finding]:
    """Which signal that looks at the model agrees most with deletion, how the others compare, and what each finds."""
    means = {name: _estimate(result, "agreement", name) for name in result.data[SIGNAL].values.tolist()}
    means = {name: mean for name, mean in means.items() if mean.value == mean.value}
    looking = [name for name in means if name not in BLIND]
    if not looking:
        return
    best = max(looking, key=lambda name: float(means[name].value))
    prompts = int(means[best].count)
    low, high = interval(means[best], share=False)
    sure = ", 95 % CI {low} to {high}, over {prompts} prompts" if prompts > 1 else " in one prompt"
    shares = ", ".join(f"{name} ({written(_estimate(result, 'found', name).value, '.0%')})" for name in looking)
    where = "In the {used} prompts" if used > 1 else "In the one prompt"
    yield Finding(
        "Of the signals that look at the model, {best} has the highest rank agreement with deletion: "
        f"ρ {{rho:.2f}}{sure}{_beside(result, means, best)}. {where} where a source matters, the source with the "
        f"largest drop is ranked first by {shares}; chance is {{chance:.0%}}.",
        {"best": best, "rho": float(means[best].value), "low": written(low, ".2f"), "high": written(high, ".2f"),
         "prompts": prompts, "used": used, "chance": float(result.data["chance"])},
    )  # fmt: skip


def _beside(result: Result, means: Mapping[str, Estimate], best: str) -> str:
    """What to add on how the other signals compare: which baselines agree more, and which signals may agree as much."""
    q = result.data["agreement_difference_q"].sel({SIGNAL: best})
    others = [name for name in means if name != best]
    above = [name for name in others if means[name].value > means[best].value]
    better = ", ".join(f"{name} (ρ {written(float(means[name].value), '.2f')})" for name in above)
    words = f"; higher without looking at the model: {better}" if above else ""
    if not any(float(q.sel({SIGNAL_B: name})) >= 0 for name in others):  # nothing was tested
        return words
    tied = [name for name in others if name not in above and not float(q.sel({SIGNAL_B: name})) < LEVEL]
    if tied:
        return f"{words}; not significantly above {', '.join(tied)}"
    return words or "; significantly above all others"


def _heads(result: Result) -> Iterator[Finding]:
    data = result.data
    for signal in ("attention", "relevance"):
        mean, q = (data[name].sel({MEASURE: signal}) for name in ("head_agreement", "head_agreement_q"))
        cells = heads(mean)
        if not cells or not bool(q.notnull().any()):
            continue
        sure = [one for one in cells if float(q.sel({LAYER: one.layer, HEAD: one.head}).max()) <= LEVEL]
        numbers = {"count": len(sure), "heads": len(cells), "named": ", ".join(map(str, sure[:NAMED]))}
        if not sure:
            yield Finding(f"By {signal}, no head ranks the sources significantly as deletion does.", numbers)
            continue
        rank = "ranks" if len(sure) == 1 else "rank"
        which = ": {named}" if len(sure) <= NAMED else "; those with the highest means: {named}"
        yield Finding(
            f"By {signal}, {{count}} of {{heads}} heads {rank} the sources significantly as deletion does (mean ρ "
            f"above 0, false discovery rate 5 %){which}.",
            numbers,
        )


def cards(result: Result) -> Iterator[Measure]:
    array = result.data["head_agreement"].sel({MEASURE: "attention"}, drop=True)
    if bool(np.isfinite(array.values).any()):
        yield Measure("sources", "rank agreement of its attention to sources with deletion", array)


REPORT = LensReport(
    title="Which parts of a prompt answers use",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(),
    cards=cards,
)
