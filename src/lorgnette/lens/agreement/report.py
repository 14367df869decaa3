"""What the pages show of agreement: which cheap signal ranks the heads as ablation does."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from lorgnette.axes import ABLATION, SIGNAL, SIGNAL_B, STACK
from lorgnette.figures.charts import signed_scale
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import EXPLANATIONS, LensReport
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL
from lorgnette.types import Chart, Json

if TYPE_CHECKING:
    import pandas as pd

_NOISY = 0.5


def figures(result: Result) -> list[Figure]:
    drawn = []
    titles = {
        "spearman": "Agreement of signals over the heads of a stack (Spearman's ρ)",
        "within": "Agreement of signals within a layer (Spearman's ρ)",
    }
    for name, title in titles.items():
        rows = result.to_dataframe(name).dropna(subset=[name])
        if len(rows):
            caption = "1: same order; 0: no relation; −1: opposite order. Intervals are in the table."
            chart = signal_matrix(rows, name)
            drawn.append(Figure(name, title, caption, chart, rows, rows, rows[STACK].nunique() > 1))
    return drawn


def signal_matrix(frame: "pd.DataFrame", value: str) -> Chart:
    """Signal × signal with ρ in each cell, a panel for each stack."""
    scale = signed_scale(1.0)
    panels = []
    for stack, part in frame.groupby(STACK, sort=False):
        rows = [
            {"down": _words(d), "across": _words(a), "value": float(v), "label": f"{v:.2f}"}
            for d, a, v in part[[SIGNAL, SIGNAL_B, value]].itertuples(index=False)
        ]
        axis = alt.Axis(ticks=False, domain=False)
        base = alt.Chart(alt.Data(values=rows), width=alt.Step(36), height=alt.Step(28)).encode(
            x=alt.X(field="across", type="nominal", title=None, sort=None, axis=alt.Axis(labelAngle=-40, ticks=False)),
            y=alt.Y(field="down", type="nominal", title=None, sort=None, axis=axis),
        )
        cells = base.mark_rect().encode(color=alt.Color(field="value", type="quantitative", scale=scale, title="ρ"))
        white = alt.condition("abs(datum.value) > 0.7", alt.value("white"), alt.value("black"))
        text = base.mark_text(fontSize=10, opacity=1).encode(text=alt.Text(field="label", type="nominal"), color=white)
        panels.append((cells + text).properties(title=str(stack)))
    return alt.hconcat(*panels) if len(panels) > 1 else panels[0]


def _words(signal: object) -> str:
    return str(signal).replace("_", ", ", 1).replace("_", " ")


def findings(result: Result) -> Iterator[Finding]:
    """The signal that ranks the heads most like ablation, and which of the others can be told from it."""
    rho = result.data["spearman"]
    reliability = {
        name: _reliability(result, name) for name in ("ablation_mean", "ablation_zero") if name in rho[SIGNAL].values
    }
    reference = max(reliability, key=lambda name: reliability[name], default=None)
    others = [name for name in rho[SIGNAL].values.tolist() if not name.startswith("ablation")]
    if reference is None or not others:
        return
    row = rho.sel({SIGNAL: reference}).sel({SIGNAL_B: others}).dropna(SIGNAL_B)
    if not row.size:
        return
    best = str(row[SIGNAL_B].values[np.argmax(row.values)])
    cell = {SIGNAL: reference, SIGNAL_B: best}
    numbers: Json = {"best": _words(best), "rho": float(row.max()), "others": len(row) - 1}
    numbers |= {end: float(result.data[f"spearman_{end}"].sel(cell)) for end in ("low", "high")}
    words = (
        "Of {all} signals, {best} has the highest rank correlation with ablation" if len(row) > 1
        else "Only the rank correlation of {best} with ablation is known"
    ) + " (ρ = {rho:.2f}, 95 % CI {low:.2f} to {high:.2f})."  # fmt: skip
    numbers["all"] = len(row)
    p = result.data["advantage_p"].sel({ABLATION: reference.removeprefix("ablation_"), SIGNAL: best})
    numbers["told"] = int((p.sel({SIGNAL_B: row[SIGNAL_B].values}) < LEVEL).sum())
    if len(row) > 1:
        test = "(paired bootstrap over heads, false discovery rate 5 %)"
        if not numbers["told"]:
            words += f" It is not significantly above any of the others {test}."
        elif numbers["told"] < numbers["others"]:
            words += f" It is significantly above {{told}} of the {{others}} others {test}."
        else:
            words += f" It is significantly above all others {test}."
    if bool(result.data["reliability"].sel({SIGNAL: reference}).isnull()):
        words += " How much of the ablation scores is noise is not known: use more texts."
    elif reliability[reference] < _NOISY:
        numbers["trust"] = reliability[reference]
        words += " Only {trust:.0%} of the variance of ablation scores over heads is not noise: use more texts."
    yield Finding(words, numbers)


def _reliability(result: Result, signal: str) -> float:
    value = float(result.data["reliability"].sel({SIGNAL: signal}))
    return value if value == value else 0.0


REPORT = LensReport(
    title="Which cheap signal agrees with ablation",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(),
)
