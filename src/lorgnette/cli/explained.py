"""`lorgnette trace … --explain METHOD`: the relevance of each word, one column for each method."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from lorgnette.cli import trace_output
from lorgnette.types import Json

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from lorgnette.explaining import Next
    from lorgnette.subject.trace import Trace
    from lorgnette.texts.batch import Tokens

_BAR = 12  # columns of a bar


def say_cost(methods: "Sequence[str]") -> None:
    """Say beforehand what takes long."""
    from lorgnette.explaining import COSTS
    from lorgnette.progress import tell_cost

    for method in dict.fromkeys(methods):
        if method in COSTS:
            tell_cost(method, COSTS[method])


def show(
    trace: "Trace", stack: str, methods: list[str], target: "str | Next | None", *, pieces: bool, as_json: bool
) -> None:
    """Print the relevance of each word by each method, or everything about it as JSON."""
    from lorgnette.cli.consoles import out

    explanations = explained(trace, methods, target, pieces=pieces)
    if as_json:
        about: Json = {
            "model": trace.subject.name,
            "weights_hash": trace.subject.weights_hash,
            "text": trace.example.text,
        }
        about |= {"pair": trace.example.pair, "target": trace.example.target, "probabilities": trace.probabilities}
        typer.echo(
            json.dumps(
                {**about, "unit": "piece" if pieces else "word", "explanations": explanations}, ensure_ascii=False
            )
        )
        return
    for line in trace_output.about(trace, stack):
        out().print(line, markup=False)
    out().print(f"explained: {explanations[0]['explained']}", markup=False)
    for table in tables(explanations):
        out().print(table)
    for one in explanations:
        if one["gap"] is not None:
            out().print(f"{one['method']}: the integral is off by {one['gap']:.2%} of f(x) − f(x⁰)", markup=False)


def explained(
    trace: "Trace", methods: Sequence[str], target: "str | Next | None" = None, *, pieces: bool
) -> list[Json]:
    """For every method and side of the text: its words (or pieces, specials included) with their relevance."""
    from lorgnette.explaining import explain
    from lorgnette.subject.trace import GRADIENT, require_room

    out = []
    require_room(trace.subject, trace.batch, GRADIENT, "explaining with all of them", instead="Shorten the text.")
    for method in methods:
        explanation = explain(trace.subject, trace.batch, method, target)
        for side, scores in (("source", explanation.tokens), ("target", explanation.target_tokens)):
            tokens = getattr(trace.batch, side)
            if scores is not None:
                words, values = _by_word(tokens, scores[0], pieces)
                about = {
                    "method": method,
                    "side": side,
                    "explained": explanation.explained[0],
                    "start": explanation.start[0].item(),
                }
                gap = None if explanation.gap is None or side != "source" else explanation.gap[0].item()
                out.append({**about, "gap": gap, "words": words, "relevance": values})
    return out


def _by_word(tokens: "Tokens", scores: "Tensor", pieces: bool) -> tuple[list[str], list[float]]:
    units, scores = tokens.units(), scores[: len(tokens.pieces[0])]
    if pieces:
        return list(tokens.shown()), scores.tolist()
    summed = scores.new_zeros(len(units.labels)).index_add(0, units.number, scores)
    return list(units.labels), summed.tolist()


def tables(explanations: list[Json]) -> "list[Table]":
    """A table for each side: words in rows, a column with bars for each method; bars are scaled within a method."""
    from rich.markup import escape
    from rich.table import Table

    out = []
    for side in dict.fromkeys(one["side"] for one in explanations):
        columns = [one for one in explanations if one["side"] == side]
        table = Table("" if side == "source" else side, *(one["method"] for one in columns), box=None, pad_edge=False)
        for row, word in enumerate(columns[0]["words"]):
            table.add_row(escape(word), *(_cell(one["relevance"], row) for one in columns))
        out.append(table)
    return out


def _cell(values: list[float], row: int) -> str:
    largest = max(abs(value) for value in values) or 1.0
    bar = round(_BAR * abs(values[row]) / largest)
    return f"{values[row]:+.3g}".rjust(9) + " " + ("█" if values[row] >= 0 else "░") * bar
