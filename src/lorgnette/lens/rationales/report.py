"""What the pages show of rationales: how plausible and how faithful explanations are."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from lorgnette.axes import MEASURE, METHOD, METHOD_B
from lorgnette.explaining import NAMES, explanations
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals
from lorgnette.figures.lens_report import EXPLANATIONS, LensReport, TextTable
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate
from lorgnette.texts.annotated import HUMAN
from lorgnette.types import Chart, Json

if TYPE_CHECKING:
    import pandas as pd

BLIND = ("random", "first", "last")
"""Baselines that use neither the model nor the words."""
_PANELS = {
    "auprc": "plausibility: AUPRC",
    "comprehensiveness": "faithfulness: comprehensiveness",
    "sufficiency": "faithfulness: sufficiency (lower is better)",
}


def figures(result: Result) -> list[Figure]:
    frame = result.to_dataframe("score").dropna(subset=["score"])
    frame = frame[frame[MEASURE].isin(list(_PANELS))]
    chance = float(result.data["chance"])
    panels = [_dots(frame[frame[MEASURE] == name], title, chance if name == "auprc" else 0.0)
              for name, title in _PANELS.items() if (frame[MEASURE] == name).any()]  # fmt: skip
    caption = (
        "AUPRC: how well an explanation ranks the words of the rationale above the others. Comprehensiveness: how far "
        "the probability falls without its top words. Sufficiency: how far it falls with its top words alone. "
        "Means over texts with 95 % confidence intervals; grey: baselines that use neither the model nor the words. "
        f"The dashed line is chance for AUPRC ({chance:.2f}, the share of words in the rationale) and zero elsewhere. "
        f"{_what_they_are(frame[METHOD].unique())}"
    )
    table = frame.pivot_table(index=METHOD, columns=MEASURE, values="score", sort=False).reset_index()
    title = "Plausibility and faithfulness of each explanation"
    chart, data = alt.concat(*panels, columns=3), result.to_dataframe("score")
    return [Figure("score", title, caption, chart, table, data, wide=True)]


def _what_they_are(methods: Iterable[str]) -> str:
    """A phrase for each method, where it is known."""
    known = explanations()
    return "; ".join(f"{_name(each)}: {known[each]}" for each in methods if each in known) + "."


def _name(method: str) -> str:
    return NAMES.get(method, method)


def _dots(frame: "pd.DataFrame", title: str, chance: float) -> Chart:
    rows = []
    for row in frame.to_dict("records"):
        error, texts = row.get("score_se", np.nan), row.get("score_count", np.nan)
        half = float(np.nan_to_num(Estimate(row["score"], error, texts).half))
        mean, kind = float(row["score"]), "blind" if row[METHOD] in BLIND else "looks"
        label = f"{_name(row[METHOD])}: {mean:.3f} ± {half:.3f}"
        one = {"method": _name(row[METHOD]), "kind": kind, "label": label}
        rows.append({**one, "mean": mean, "low": mean - half, "high": mean + half})
    order = [row["method"] for row in rows]
    y = alt.Y(field="method", type="nominal", sort=order, title=None)
    scale = alt.Scale(domain=["looks", "blind"], range=[COLOURS[0], COLOURS[-1]])
    colour = alt.Color(field="kind", type="nominal", scale=scale, legend=None)
    base = alt.Chart(alt.Data(values=rows), width=200, height=alt.Step(22), title=title)
    rule = alt.Chart(alt.Data(values=[{"x": chance}])).mark_rule(strokeDash=[3, 3], opacity=0.5)
    rule = rule.encode(x=alt.X(field="x", type="quantitative"))
    bars = base.mark_rule().encode(
        x=alt.X(field="low", type="quantitative", title=None), x2=alt.X2(field="high"), y=y, color=colour
    )
    dots = base.mark_point(filled=True, size=50, opacity=1).encode(
        x=alt.X(field="mean", type="quantitative", title=None),
        y=y,
        color=colour,
        description=alt.Description(field="label", type="nominal"),
    )
    return alt.layer(rule, bars, dots)


def findings(result: Result) -> Iterator[Finding]:
    """The most plausible and the most faithful explanation, with those that do not differ significantly from it."""
    yield from (finding for finding in (plausible(result), faithful(result)) if finding is not None)


def plausible(result: Result) -> Finding | None:
    """The explanation with the highest AUPRC."""
    scores = _scores(result, "auprc")
    if not scores:
        return None
    best = max(scores, key=lambda name: scores[name].value)
    numbers: Json = {"best": _name(best), "auprc": scores[best].value, "chance": float(result.data["chance"])}
    numbers["recall"] = float(result.data["score"].sel({MEASURE: "token_recall", METHOD: best}))
    numbers |= {"k": str(result.data.attrs.get("k", "words")), "texts": int(result.data["texts"])}
    numbers["tied"] = ", ".join(map(_name, tied(result, "auprc", best, scores)))
    doubt = _against_others(numbers["tied"], len(scores))
    human = "human " if str(result.provenance.corpus).partition(":")[0] in HUMAN else ""
    return Finding(
        f"{{best}} agrees best with the {human}rationales: its top {{k}} recover {{recall:.0%}} of them (AUPRC "
        f"{{auprc:.2f}}; chance {{chance:.2f}}; {{texts}} texts){doubt}.",
        numbers,
    )


def faithful(result: Result) -> Finding | None:
    """The explanation with the highest comprehensiveness, and whether it beats random words."""
    scores, random = _scores(result, "comprehensiveness"), _scores(result, "comprehensiveness", ("random",))
    if not scores or not random:
        return None
    ranked = sorted(scores, key=lambda name: scores[name].value)
    most, least = ranked[-1], ranked[0]
    guess = random["random"]
    numbers: Json = {
        "most": _name(most),
        "drop": scores[most].value,
        "least": _name(least),
        "small": scores[least].value,
    }
    numbers |= {"guess": guess.value, "explained": result.data.attrs.get("explained", "the predicted class")}
    better = [name for name in ranked if scores[name].value > guess.value
              and not tied(result, "comprehensiveness", name, random)]  # fmt: skip
    numbers |= {"better": len(better), "all": len(ranked)}
    numbers["tied"] = ", ".join(map(_name, tied(result, "comprehensiveness", most, scores)))
    doubt = _against_others(numbers["tied"], len(scores))
    beyond = "{better} of {all} explanations do" if len(better) > 1 else "{better} of {all} explanations does"
    verdict = f"; {beyond if better else 'no explanation does'} significantly better than random words"
    form = f".{decimals(*(one.half for one in (scores[most], scores[least], guess)))}f"
    lowest = f"those of {{least}} lower it by {{small:{form}}}, " if len(ranked) > 1 else ""
    return Finding(
        f"Deleting the top words of {{most}} lowers the probability of {{explained}} by {{drop:{form}}}{doubt}; "
        f"{lowest}random words by {{guess:{form}}}{verdict}.",
        numbers,
    )


def _scores(result: Result, measure: str, methods: Sequence[str] | None = None) -> dict[str, Estimate]:
    """The score of each explanation (or of the given baselines), as far as it is known."""
    data = result.data.sel({MEASURE: measure})
    names = methods or [name for name in data[METHOD].values.tolist() if name not in BLIND]
    found = {name: Estimate.of(data, "score", {METHOD: name}) for name in names}
    single = {name: Estimate(float(one.value), float(one.se), float(one.count)) for name, one in found.items()}
    return {name: one for name, one in single.items() if one.value == one.value}


def tied(result: Result, measure: str, best: str, others: Iterable[str]) -> list[str]:
    """The methods that are not significantly below the best one, by the paired test over texts."""
    p = result.data["score_difference_p"].sel({MEASURE: measure, METHOD: best})
    return [name for name in others if name != best and not float(p.sel({METHOD_B: name})) < LEVEL]


def _against_others(ties: str, count: int) -> str:
    if ties:
        return "; not significantly above {tied}"
    return "; significantly above all others" if count > 1 else ""


_MEANS = {"auprc": "AUPRC", "auroc": "AUROC", "token_f1": "token F1", "comprehensiveness": "compr.",
          "sufficiency": "suff."}  # fmt: skip


def table(result: Result) -> TextTable:
    """A row for each explanation: means with half their intervals, the pooled scores, and what it costs."""
    data, rows = result.data, []
    for name in data[METHOD].values.tolist():
        row = data.sel({METHOD: name})
        means = Estimate.of(row, "score", {MEASURE: list(_MEANS)})
        cells = map(_with_interval, means.value.values.tolist(), means.half.values.tolist())
        pooled = (_with_interval(row[name].item(), math.nan) for name in ("pooled_auprc", "iou_f1"))
        rows.append((_name(name), *cells, *pooled, f"{row['seconds_per_text'].item():.4f}"))
    notes = [
        "± half a 95 % interval over texts; "
        f"{data['texts'].item():,} texts with gold, {data['texts_without_gold'].item():,} without; chance: "
        f"AUPRC {data['chance'].item():.3f}, pooled {data['pooled_chance'].item():.3f}; k = {data.attrs['k']}; "
        f"explained: {data.attrs['explained']}"
    ]
    if lost := data["gold_cut"].item():
        notes.append(f"{lost:,} gold words ({data['gold_cut_share'].item():.0%}) were cut off with the ends of texts.")
    return TextTable(("explanation", *_MEANS.values(), "pooled AUPRC", "IOU F1", "s/text"), rows, tuple(notes))


def _with_interval(value: float, half: float) -> str:
    """ "0.412 ± 0.021"; a dash where there is no number, and no ± where there is no error."""
    if value != value:
        return "–"
    return f"{value:.3f}" + (f" ± {half:.3f}" if half == half else "")


REPORT = LensReport(
    title="Are explanations plausible and faithful?",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    meaning=("share", "top", "gold", "perturbation", "class_name"),
    table=table,
    rank=3,
)
