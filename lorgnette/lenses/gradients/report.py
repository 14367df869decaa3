"""What the pages show of the gradients: which weights the loss depends on."""

from collections.abc import Iterator
from typing import Any

from lorgnette.axes import CATEGORY
from lorgnette.figures.cells import said
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import EXPLANATIONS, Compared, LensReport
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import categories_present, variable_figure
from lorgnette.results import Result

_DRAWN = ("all", "cls", "sep", "punctuation", "other")


def figures(result: Result) -> list[Figure]:
    kinds = categories_present(result, "gradient", _DRAWN)
    title = "Would the loss notice? |∂loss/∂α| by kind of token read"
    return [variable_figure(result, "gradient", title, category=kinds)]


def findings(result: Result) -> Iterator[Finding]:
    """The heads whose weights the loss depends on most; and special tokens beside all tokens."""
    gradient = result.data["gradient"]
    every = gradient.sel({CATEGORY: "all"}) if "all" in gradient[CATEGORY].values else gradient.mean(CATEGORY)
    steepest = heads(every)
    if not steepest or not steepest[0].value:
        return
    mean = float(every.mean())
    named = ", ".join(f"{one.layer}.{one.head} ({one.value / mean:.1f} times the mean)" for one in steepest[:NAMED])
    numbers: dict[str, Any] = {"named": named}
    words = "The loss depends most on the weights of heads {named}"
    special = categories_present(result, "gradient", ("cls", "sep"))
    ratios = {kind: float(gradient.sel({CATEGORY: kind}).mean()) / mean for kind in special}
    parts = [f"that of the {said(kind)} {{{kind}:.1f}} times" for kind in ratios]
    tail = f"; a weight on any token counts once, {' and '.join(parts)} as much." if ratios else "."
    yield Finding(words + tail, numbers | ratios)


REPORT = LensReport(
    title="Would the loss notice?",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(Compared("gradient", select={CATEGORY: _DRAWN}, named={CATEGORY: ("all", "cls", "sep")}),),
)
