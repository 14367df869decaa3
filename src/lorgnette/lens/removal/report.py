"""What the pages show of removal: the curves of every signal beside random sets, and which signals differ."""

from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from lorgnette.axes import DRAW, SHARE, SIGNAL, SIGNAL_B, STACK
from lorgnette.figures.charts import COLOURS, percent_axis
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import PRUNING, LensReport
from lorgnette.lens.removal.lens import RANDOM, SAME
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd


FEWEST_DRAWS = round(1 / LEVEL)
"""Random sets of which none may do as well for p to be below the level."""


def figures(result: Result) -> list[Figure]:
    drawn = []
    for metric in _metrics(result):
        rows = result.to_dataframe(f"{metric}_change").dropna(subset=[f"{metric}_change"])
        intact = float(result.data[metric])
        rows[metric] = intact + rows[f"{metric}_change"]
        caption = (
            f"{metric.capitalize()} without that share of the heads, the least important by each signal first; the "
            f"intact model has {intact:.3f}. Bars: 95 % intervals over texts. Dashed: random sets. "
            f"Heads were ranked on {_ranked_on(result)}; removed heads output {_replacement(result)}."
        )
        title = f"{metric.capitalize()} without the least important heads"
        chart = curves(rows, metric)
        drawn.append(Figure(f"{metric}_change", title, caption, chart, rows, rows, rows[STACK].nunique() > 1))
    return drawn


def curves(frame: "pd.DataFrame", metric: str) -> "alt.LayerChart | alt.HConcatChart":
    """A line for every signal over the share of heads that is gone, a panel for each stack."""
    panels = []
    names = [name for name in frame[SIGNAL].map(_words).unique().tolist() if name != RANDOM]
    signals = dict(zip(names, cycle(COLOURS[:-1]), strict=False))
    colours = alt.Scale(domain=[*signals, RANDOM], range=[*signals.values(), COLOURS[-1]])
    for stack, part in frame.groupby(STACK, sort=False):
        columns = (metric, f"{metric}_change_se", f"{metric}_change_count")
        found = Estimate(*(part[name].to_numpy(dtype=float) for name in columns))
        part = part.assign(low=found.low, high=found.high, signal=part[SIGNAL].map(_words))
        rows = part[["signal", SHARE, metric, "low", "high"]].to_dict("records")
        base = alt.Chart(alt.Data(values=rows), width=330, height=240).encode(
            x=alt.X(field=SHARE, type="quantitative", title="share of heads removed", axis=percent_axis()),
            color=alt.Color(field="signal", type="nominal", title="ranked by", scale=colours),
        )
        dashed = alt.condition(f"datum.signal == '{RANDOM}'", alt.value([5, 4]), alt.value([1, 0]))
        scale = alt.Scale(zero=False)
        y = alt.Y(field=metric, type="quantitative", title=metric, scale=scale)
        lines = base.mark_line(point=True).encode(y=y, strokeDash=dashed)
        bars = base.mark_rule(opacity=0.4).encode(
            y=alt.Y(field="low", type="quantitative", scale=scale, title=metric), y2=alt.Y2(field="high")
        )
        panels.append((bars + lines).properties(title=str(stack)))
    return alt.hconcat(*panels) if len(panels) > 1 else panels[0]


def findings(result: Result) -> Iterator[Finding]:
    """Compare signals with about half of the heads removed: the best, random sets, and which differ from the best."""
    metric = _metrics(result)[0]
    share = _middle(result)
    at = {SHARE: share}
    change = result.data[f"{metric}_change"].sel(at).dropna(SIGNAL)
    names = [name for name in change[SIGNAL].values.tolist() if name != RANDOM]
    if not names:
        return
    signals = change.sel({SIGNAL: names})
    sign = 1 if metric == "accuracy" else -1
    best = names[int(np.argmax(sign * signals.values))]
    p = result.data[f"{metric}_difference_p"].sel(at | {SIGNAL: best})
    worse = sum(float(p.sel({SIGNAL_B: name})) < LEVEL for name in names if name != best)
    intact, random = float(result.data[metric]), float(change.sel({SIGNAL: RANDOM}))
    numbers: Json = {
        "share": share, "metric": metric, "intact": intact, "best": _words(best), "worse": worse,
        "left": intact + float(signals.sel({SIGNAL: best})), "random": intact + random, "others": len(names) - 1,
        "p": float(result.data[f"{metric}_chance_p"].sel(at | {SIGNAL: best})),
        "draws": result.data.sizes[DRAW],
        "as_good": int((sign * (result.data[f"{metric}_draw"].sel(at) - signals.sel({SIGNAL: best})) >= 0).sum()),
    }  # fmt: skip
    words = (
        "Removing {share:.0%} of the heads changes {metric} from {intact:.3f} to {left:.3f} if {best} selects them, "
        "and to {random:.3f} on average if they are drawn at random ({draws} sets, of which {as_good} do as well; p = "
        "{p:.2g}, corrected over signals)."
    )
    if 1 / (1 + numbers["draws"]) >= LEVEL:
        words += f" So few sets can never show that a signal is better than chance: take at least {FEWEST_DRAWS}."
    if len(names) > 1:
        words += f" {_others(worse, len(names) - 1)}"
    if _ranked_on(result) == SAME:
        words += " The heads were ranked on the same texts, which favours signals that use the loss."
    yield Finding(words, numbers)


def _others(worse: int, others: int) -> str:
    """How many of the other signals are significantly worse than the best."""
    if worse == others:
        return (
            "All {others} other signals are significantly worse." if others > 1 else "The other is significantly worse."
        )
    if not worse:
        return "None of the {others} other signals is significantly worse."
    verb = "is" if worse == 1 else "are"
    return (
        f"{{worse}} of the {{others}} other signals {verb} significantly worse; the rest do not differ significantly."
    )


def _metrics(result: Result) -> list[str]:
    return [name for name in ("accuracy", "loss") if f"{name}_change" in result.data]


def _ranked_on(result: Result) -> str:
    return str(result.data.attrs.get("ranked_on", SAME))


def _replacement(result: Result) -> str:
    return "their mean over the corpus" if result.data.attrs.get("ablation") == "mean" else "zero"


def _middle(result: Result) -> float:
    return min(result.data[SHARE].values.tolist(), key=lambda share: abs(share - 0.5))


def _words(signal: object) -> str:
    return str(signal).replace("_", " ")


REPORT = LensReport(
    title="Removing the least important heads together",
    chapter=PRUNING,
    figures=figures,
    findings=findings,
    compared=(),
    meaning=("ablation",),
)
