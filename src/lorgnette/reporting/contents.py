"""The contents of a page about results, and their order, as the lenses declare them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import xarray as xr

from lorgnette import lens as lenses
from lorgnette.axes import HEAD, LAYER, STACK
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import CHAPTERS, Chapter
from lorgnette.figures.sentences import literal, stacks
from lorgnette.reporting.curves import has_steps, step_figures, step_findings
from lorgnette.results import Result
from lorgnette.results.result import CENTRED, WHOLE_MODEL
from lorgnette.statistics.estimate import share_interval


def figures_of(result: Result) -> list[Figure]:
    """The figures of a result: those of its lens, or one for every variable by layer."""
    from altair.utils.schemapi import debug_mode

    # Altair checks each part of a chart as it is made, and the whole again when it is drawn. For ours, once is enough.
    with debug_mode(result.lens not in lenses.OURS):
        return step_figures(result) if has_steps(result) else lenses.report_of(result.lens).figures(result)


def findings_of(result: Result) -> list[Finding]:
    """The sentences about one result, stack by stack."""
    if has_steps(result):
        return list(step_findings(result))
    sentences = lenses.report_of(result.lens).findings
    by_stack = {
        words: list(sentences(Result(result.lens, data, result.provenance))) for words, data in stacks(result.data)
    }
    # What is about the whole model, such as its loss, every stack says with the same numbers: once is enough.
    common = [one for one in next(iter(by_stack.values()), []) if all(one in found for found in by_stack.values())]
    if len(by_stack) < 2:
        common = []
    own = [replace(one, template=words + one.template) for words, found in by_stack.items()
           for one in found if one not in common]  # fmt: skip
    centred = Finding(f"In {result.lens}, the constant part of each head, its mean over the corpus, is left out.")
    return [*own, *common, *([centred] if result.data.attrs.get(CENTRED) else [])]


def findings(results: Mapping[str, Result]) -> list[Finding]:
    """The sentences for these results, lens by lens; a lens without its own gets one about its first variable."""
    return [finding for result in results.values() for finding in findings_of(result)]


DECISIONS = ("relevance", "importance")
"""Lenses about what a classifier decides, suggested where none of them was used."""


def whole_model(results: Mapping[str, Result]) -> Finding | None:
    """How good a classifier is on these texts, where they have labels."""
    for result in results.values():
        if WHOLE_MODEL in result.data.attrs:
            numbers = result.data.attrs[WHOLE_MODEL]
            low, high = share_interval(round(numbers["accuracy"] * numbers["texts"]), numbers["texts"])
            return Finding(
                "The whole model: accuracy {accuracy:.3f} (95 % CI {low:.3f} to {high:.3f}), loss {loss:.3f} over "
                "{texts:,} labelled texts.",
                {**numbers, "low": low, "high": high},
            )
    return None


MOST_FIRST, FEWEST_FIRST = 3, 2
"""How many findings open a page."""


def opening(results: Mapping[str, Result], found: Mapping[str, Sequence[Finding]]) -> list[str]:
    """The results whose first findings open the page: those that found something, by rank, one for each chapter."""
    reports = {name: lenses.report_of(result.lens) for name, result in in_order(results).items() if found[name]}
    ranked = sorted(reports, key=lambda name: (found[name][0].nothing, -reports[name].rank))
    firsts: dict[Chapter, str] = {}
    for name in ranked:
        firsts.setdefault(reports[name].chapter, name)
    chosen = list(firsts.values())[:MOST_FIRST]
    return chosen if len(chosen) >= FEWEST_FIRST else ranked[:FEWEST_FIRST]


_TASKS = {
    "ForSequenceClassification": "classifies texts",
    "Classifier": "classifies texts",
    "ForCausalLM": "predicts the next token",
    "LMHeadModel": "predicts the next token",
    "ForMaskedLM": "predicts masked tokens",
    "ForConditionalGeneration": "writes a text from another",
    "MTModel": "writes a text from another",
    "Model": "turns tokens into vectors, without a task head",
}
"""What a model does, by the ending of its class."""


def what_it_is(name: str, results: Mapping[str, Result]) -> Finding:
    """What the model is, and what it does as far as its class says so."""
    kind = next(iter(results.values())).provenance.model_class or ""
    does = next((what for ending, what in _TASKS.items() if kind.endswith(ending)), "")
    there, numbers = head_numbers(results), {}
    parts = [literal(kind)] if kind else []
    if there is not None:
        layers = int(there.notnull().any(HEAD).sum())
        numbers = {"layers": layers, "heads": int(there.notnull().sum())}
        parts.append(f"{{heads}} heads in {{layers}} {'layer' if layers == 1 else 'layers'}")
    about = ", ".join(parts)
    if does:
        return Finding(f"{literal(name)}{f' ({about})' if about else ''} {does}.", numbers)
    return Finding(f"{literal(name)}{f': {about}' if about else ''}.", numbers)


def head_numbers(results: Mapping[str, Result]) -> xr.DataArray | None:
    """A number for every head that was seen, if a result has one."""
    for result in results.values():
        for array in result.data.data_vars.values():
            if {LAYER, HEAD} <= set(array.dims) <= {STACK, LAYER, HEAD} and array.dtype.kind == "f":
                return array
    return None


def in_order(results: Mapping[str, Result]) -> dict[str, Result]:
    """Results in the order of the page, whatever order they were computed in; lenses that are not known come last."""
    order = list(lenses.registered())
    rank = {name: order.index(one.lens) if one.lens in order else len(order) for name, one in results.items()}
    return {name: results[name] for name in sorted(results, key=lambda name: rank[name])}


def in_chapters(results: Mapping[str, Result]) -> dict[Chapter, dict[str, Result]]:
    """Results by chapter, both in the order of the page; chapters without a result are left out."""
    out: dict[Chapter, dict[str, Result]] = {}
    for name, result in in_order(results).items():
        out.setdefault(lenses.report_of(result.lens).chapter, {})[name] = result
    known = [chapter for chapter in CHAPTERS if chapter in out]
    # Where the model decides something, what it decides by comes first.
    known.sort(key=lambda chapter: not chapter.decides)
    return {chapter: out[chapter] for chapter in (*known, *(chapter for chapter in out if chapter not in known))}
