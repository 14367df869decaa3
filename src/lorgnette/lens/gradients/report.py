"""What the pages show of the gradients: which weights the loss depends on."""

from collections.abc import Iterator

from lorgnette.axes import CATEGORY
from lorgnette.figures.cells import said
from lorgnette.figures.doubt import difference, head_extreme
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, heads
from lorgnette.figures.lens_report import EXPLANATIONS, Compared, LensReport
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import categories_present, variable_figure
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Json

_DRAWN = ("all", "cls", "sep", "punctuation", "other")


def figures(result: Result) -> list[Figure]:
    kinds = categories_present(result, "gradient", _DRAWN)
    title = "Sensitivity of the loss to attention weights, by category of token"
    return [variable_figure(result, "gradient", title, category=kinds)]


def findings(result: Result) -> Iterator[Finding]:
    """The heads whose weights the loss depends on most; and special tokens beside all tokens."""
    gradient = result.data["gradient"]
    every = gradient.sel({CATEGORY: "all"}) if "all" in gradient[CATEGORY].values else gradient.mean(CATEGORY)
    steepest = heads(every)
    if not steepest or not steepest[0].value:
        return
    mean = float(every.mean())
    named = ", ".join(f"{one.layer}.{one.head} ({one.value / mean:.1f}× the mean)" for one in steepest[:NAMED])
    numbers: Json = {"named": named}
    words = "The loss is most sensitive to the attention weights of heads {named}"
    if "all" in gradient[CATEGORY].values:
        best, names = head_extreme(result.data, "gradient", {CATEGORY: "all"})
        words += f"; the first is{best.beside(names).removeprefix(',')}" if best.comparable else ""
    special = categories_present(result, "gradient", ("cls", "sep"))
    ratios = {kind: float(gradient.sel({CATEGORY: kind}).mean()) / mean for kind in special}
    parts = [_beside_all(result, kind, mean) for kind in ratios]
    tail = f". Gradient magnitude is {' and '.join(parts)}." if ratios else "."
    yield Finding(words + tail, numbers | ratios)


def _beside_all(result: Result, kind: str, mean: float) -> str:
    """The mean over heads on this category over that on all tokens, and whether the two differ."""
    words = f"× the average on weights of the {said(kind)}"
    if "all" not in result.data[CATEGORY].values:
        return f"{{{kind}:.1f}}{words}"
    found = (Estimate.of(result.data, "gradient", {CATEGORY: each}) for each in (kind, "all"))
    on_kind, on_all = (Estimate(float(e.value.mean()), float(e.se.mean()), float(e.count.max())) for e in found)
    apart = difference(result.data, "over_all", {CATEGORY: kind}, on_kind, on_all)
    told = apart.significant().removeprefix("; ")
    return f"{{{kind}:.{decimals(float(apart.half) / mean, least=1)}f}}{words}" + (f" ({told})" if told else "")


REPORT = LensReport(
    title="Which attention weights the loss is sensitive to",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(
        Compared(
            "gradient",
            "gradient magnitude",
            select={CATEGORY: _DRAWN},
            named={CATEGORY: ("all", "cls", "sep")},
        ),
    ),
    meaning=("by",),
)
