"""What the pages show of synthetic tests: induction, duplicate-token, previous-token and retrieval heads."""

from collections.abc import Iterator

import altair as alt

from lorgnette.axes import DEPTH, HEAD, LAYER, LENGTH, TEST
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport, Measure
from lorgnette.figures.sentences import NAMED, has
from lorgnette.figures.variables import variable_figure
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL

CLEAR = 0.1
"""An excess below this is no role, however sure it is."""
_NAMES = {
    "induction": "an induction",
    "duplicate": "a duplicate-token",
    "previous": "a previous-token",
    "retrieval": "a retrieval",
}


def figures(result: Result) -> list[Figure]:
    known = [test for test in _NAMES if bool(result.data["score"].sel({TEST: test}).notnull().any())]
    drawn = [variable_figure(result, name, title, test=known)
             for name, title in (("excess", "Synthetic tests: score minus control"), ("score", "Scores"))]  # fmt: skip
    return [*drawn, *([_recall(result)] if "recall" in result.data else [])]


def _recall(result: Result) -> Figure:
    frame = result.to_dataframe("recall")
    rows: list[dict[str, str | float]] = [
        {"length": int(size), "depth": int(depth), "value": float(value)}
        for size, depth, value in frame[[LENGTH, DEPTH, "recall"]].itertuples(index=False)
    ]
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(48), height=alt.Step(28)).mark_rect().encode(
        x=alt.X(field="depth", type="ordinal", title="depth of the needle (%)", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(field="length", type="ordinal", title="tokens"),
        color=alt.Color(field="value", type="quantitative", title="recall",
                        scale=alt.Scale(scheme="viridis", domain=[0, 1])),
    )  # fmt: skip
    caption = "Share of the needle's tokens that the model generates, mean over trials."
    return Figure("recall", "Needle in a haystack: what the model finds", caption, chart, frame.round(3), frame)


def findings(result: Result) -> Iterator[Finding]:
    """How many heads of each kind there are, and which is the strongest."""
    data = result.data
    for test, words in _NAMES.items():
        excess, q = (data[name].sel({TEST: test}) for name in ("excess", "excess_q"))
        cells = heads(excess)
        if not cells:
            continue
        sure = [one for one in cells if one.value >= CLEAR
                and float(q.sel({LAYER: one.layer, HEAD: one.head})) <= LEVEL]  # fmt: skip
        named = ", ".join(map(str, sure[:NAMED]))
        numbers = {"count": len(sure), "heads": len(cells), "named": named, "level": CLEAR}
        if not sure:
            words = f"No head has {words} score that is significantly, and by at least {{level}}, above the control."
            yield Finding(words, numbers)
            continue
        yield Finding(
            f"{{count}} of {{heads}} heads {has(len(sure))} {words} score at least {{level}} above the control (false "
            "discovery rate 5 %): {named}.",
            numbers,
        )


def cards(result: Result) -> Iterator[Measure]:
    for test in ("induction", "retrieval"):
        yield Measure(test, f"{test} score minus control", result.data["excess"].sel({TEST: test}, drop=True))


REPORT = LensReport(
    title="What heads do in synthetic tests",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(Compared("excess", "synthetic score minus control"),),
    cards=cards,
    meaning=("length",),
)
