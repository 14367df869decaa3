"""What the pages show of coreference: which head reads the antecedent of a mention."""

from collections.abc import Iterator
from dataclasses import replace

from lorgnette.axes import BASELINE, CANDIDATES, HEAD, KIND, LAYER, PART
from lorgnette.figures.doubt import difference
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport
from lorgnette.figures.variables import variable_figure
from lorgnette.lens.coreference.lens import best_antecedents
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Json

_LEAST = 0.005
"""A narrower interval would be printed as ± 0 %; none at all is known of one text."""


def figures(result: Result) -> list[Figure]:
    rules = result.data["baseline_accuracy"].sel({KIND: "all", PART: "held_out"})
    rates = {str(name): float(rules.sel({BASELINE: name})) for name in rules[BASELINE].values}
    baselines = ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items() if rate == rate)
    title = "Share of mentions whose head word attends most to an antecedent"
    figure = variable_figure(result, "accuracy", title, kind="all", part="held_out")
    table = best_antecedents(result)
    caption = f"{figure.caption} Held-out texts. Baselines: {baselines}."
    return [replace(figure, caption=caption, table=table.round(3) if len(table) else figure.table)]


def findings(result: Result) -> Iterator[Finding]:
    """The head that finds most antecedents, chosen on one part and tested on the other."""
    cells = result.data["accuracy"].sel({KIND: "all", CANDIDATES: "mentions"})
    development, held_out = (cells.sel({PART: part}) for part in ("development", "held_out"))
    ranked = heads(development)
    if not ranked or bool(held_out.isnull().all()):
        return
    best = ranked[0]
    at: dict[str, str | int] = {KIND: "all", PART: "held_out"}
    found = Estimate.of(result.data, "accuracy", {**at, CANDIDATES: "mentions", LAYER: best.layer, HEAD: best.head})
    every = {str(name): Estimate.of(result.data, "baseline_accuracy", {**at, BASELINE: name})
             for name in result.data[BASELINE].values}  # fmt: skip
    rules = {name: rule for name, rule in every.items() if rule.value == rule.value}  # nobody may know the subjects
    numbers: Json = {"best": f"{best.layer}.{best.head}", "found": float(found.value), "half": float(found.half)}
    interval = " (95 % CI ± {half:.0%})" if numbers["half"] >= _LEAST else ""
    numbers |= {name: float(rule.value) for name, rule in rules.items()}
    told = {}
    for name, rule in rules.items():
        where = {**at, BASELINE: name, LAYER: best.layer, HEAD: best.head}
        told[name] = difference(result.data, "over_baseline", where, found, rule).significant().removeprefix("; ")
    said = [f"{_RULES[name]} for {{{name}:.0%}}" + (f" ({words})" if words else "") for name, words in told.items()]
    yield Finding(
        "Head {best}, the best on one half of the texts, finds the antecedent of {found:.0%} of the mentions in the "
        f"other{interval}; {', '.join(said)}.",
        numbers,
    )


_RULES = {
    "nearest": "the nearest mention is correct",
    "head_match": "the same head word",
    "subject": "the nearest subject",
}


REPORT = LensReport(
    title="Which heads attend to the antecedent",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(
        Compared("accuracy", "mentions whose antecedent is found", select={KIND: ("all",), PART: ("held_out",)}),
    ),
)
