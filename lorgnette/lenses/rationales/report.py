"""What the pages show of rationales: do explanations point to the marked words, and to those that the model needs?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import altair as alt

from lorgnette.axes import MEASURE, METHOD
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import EXPLANATIONS, LensReport
from lorgnette.results import Result

if TYPE_CHECKING:
    import pandas as pd

BLIND = ("random", "first", "last")
"""Ways to choose words that look at neither the model nor the words."""
_PANELS = {
    "auprc": "plausible: area under precision and recall",
    "comprehensiveness": "faithful: what the prediction loses without the words",
    "sufficiency": "and with nothing but them (low is good)",
}


def figures(result: Result) -> list[Figure]:
    frame = result.to_dataframe("score").dropna(subset=["score"])
    frame = frame[frame[MEASURE].isin(list(_PANELS))]
    chance = float(result.data["chance"])
    panels = [_dots(frame[frame[MEASURE] == name], title, chance if name == "auprc" else 0.0)
              for name, title in _PANELS.items() if (frame[MEASURE] == name).any()]  # fmt: skip
    caption = (
        "Dots are means over texts with ± 1.96 standard errors; grey ones look at neither the model nor the words. "
        f"The stroke is what knows nothing: {chance:.2f} of a text's words are marked."
    )
    table = frame.pivot_table(index=METHOD, columns=MEASURE, values="score", sort=False).reset_index()
    title = "Which explanation points to the marked words, and to those the model needs"
    chart, data = alt.concat(*panels, columns=3), result.to_dataframe("score")
    return [Figure("score", title, caption, chart, table, data, wide=True)]


def _dots(frame: "pd.DataFrame", title: str, chance: float) -> Any:
    rows = []
    for row in frame.to_dict("records"):
        error = row.get("score_se")
        half = 1.96 * error if error is not None and error == error else 0.0
        mean, kind = float(row["score"]), "blind" if row[METHOD] in BLIND else "looks"
        label = f"{row[METHOD]}: {mean:.3f} ± {half:.3f}"
        one = {"method": str(row[METHOD]), "kind": kind, "label": label}
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
    """The most plausible explanation, the most faithful one, and words at random beside both."""
    score = result.data["score"]
    looking = [name for name in score[METHOD].values.tolist() if name not in BLIND]
    plausible = score.sel({MEASURE: "auprc", METHOD: looking}).dropna(METHOD)
    if not plausible.sizes[METHOD]:
        return
    best = str(plausible[METHOD].values[int(plausible.values.argmax())])
    numbers: dict[str, Any] = {"best": best, "auprc": float(plausible.max()), "chance": float(result.data["chance"])}
    numbers["recall"] = float(score.sel({MEASURE: "token_recall", METHOD: best}))
    numbers |= {"k": str(result.data.attrs.get("k", "words")), "texts": int(result.data["texts"])}
    yield Finding(
        "The words that people marked are found best by {best}: its first {k} hold {recall:.0%} of them (area under "
        "precision and recall {auprc:.2f}; a guess gets {chance:.2f}; {texts} texts).",
        numbers,
    )
    faithful = score.sel({MEASURE: "comprehensiveness", METHOD: looking}).dropna(METHOD)
    guess = float(score.sel({MEASURE: "comprehensiveness", METHOD: "random"}))
    if not faithful.sizes[METHOD] or guess != guess:
        return
    most = str(faithful[METHOD].values[int(faithful.values.argmax())])
    least = str(faithful[METHOD].values[int(faithful.values.argmin())])
    verdict = "trust {most} first" if float(faithful.max()) > guess else "none of them does better than chance"
    yield Finding(
        "Without the first words of {most} the prediction loses {drop:.2f} of its probability, without those of "
        f"{{least}} {{small:.2f}}, without words at random {{guess:.2f}}: {verdict}.",
        {"most": most, "drop": float(faithful.max()), "least": least, "small": float(faithful.min()), "guess": guess},
    )


REPORT = LensReport(
    title="Do explanations point to the right words?", chapter=EXPLANATIONS, figures=figures, findings=findings
)
