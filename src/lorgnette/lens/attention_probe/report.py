"""What the pages show of the attention probe: all heads together as a parser."""

from collections.abc import Iterator

import altair as alt

from lorgnette.axes import DECODING, FEATURES
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.doubt import difference
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import FUNCTION, LensReport
from lorgnette.figures.variables import variable_figure
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate

_LEAST = 0.005
"""A narrower interval would be printed as ± 0 %; none at all is known of one text."""


def figures(result: Result) -> list[Figure]:
    frame = result.to_dataframe("uas").dropna(subset=["uas"])
    weight = variable_figure(result, "weight", "Weight of each head in the trained combination")
    if not len(frame):
        return [weight]
    values = [
        {"features": str(row[FEATURES]).replace("_", " + "), "decoding": str(row[DECODING]), "uas": float(row["uas"])}
        for row in frame.to_dict("records")
    ]
    chart = alt.Chart(alt.Data(values=values), width=260, height=alt.Step(18)).mark_bar()
    chart = chart.encode(
        x=alt.X(field="uas", type="quantitative", scale=alt.Scale(domain=[0, 1]), title="UAS on held-out texts"),
        y=alt.Y(field="features", type="nominal", title=None, sort=None),
        yOffset=alt.YOffset(field="decoding", type="nominal"),
        color=alt.Color(field="decoding", type="nominal", scale=alt.Scale(range=list(COLOURS[:2])), title=None),
    )
    following = float(result.data["head_is_next_uas"])
    caption = f"Trained on the development half, scored on held-out texts. Attaching to the next word: {following:.3f}."
    return [Figure("uas", "All heads together as a parser", caption, chart, frame.round(3), frame), weight]


def findings(result: Result) -> Iterator[Finding]:
    """How many heads of words the trained combination finds, beside the next word."""
    uas = Estimate.of(result.data, "uas", {FEATURES: "attention", DECODING: "argmax"})
    if bool(uas.value.isnull()):
        return
    following = Estimate.of(result.data, "head_is_next_uas")
    numbers = {"uas": float(uas.value), "half": float(uas.half), "next": float(following.value)}
    at = {FEATURES: "attention", DECODING: "argmax"}
    told = difference(result.data, "uas_over_next", at, uas, following).significant()
    half, over = (" ± {half:.0%}", " (95 % CI over texts)") if numbers["half"] >= _LEAST else ("", "")
    yield Finding(
        f"A trained combination of all heads attaches {{uas:.0%}}{half} of held-out words correctly{over}; "
        f"attaching to "
        f"the next word is correct for {{next:.0%}}{told}.",
        numbers,
    )


REPORT = LensReport(
    title="How much syntax all heads encode together", chapter=FUNCTION, figures=figures, findings=findings
)
