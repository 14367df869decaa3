"""Words that the findings of several lenses share, and the sentence of a lens that has none of its own."""

from collections.abc import Iterator

import xarray as xr

from lorgnette.axes import HEAD, LAYER, STACK
from lorgnette.figures.cells import said, shown, titled
from lorgnette.figures.finding import Finding, heads
from lorgnette.results import Result

SPECIAL = ("cls", "sep", "period_comma")
NAMED = 3  # heads that are named one by one
CLEAR = 0.1
"""A rank correlation no further from zero is not worth a claim."""
_STACKS = {"encoder": "Encoder: ", "decoder": "Decoder: ", "cross": "Cross-attention: "}


def stacks(data: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """One stack after another, with the words that say which if there are several."""
    if STACK not in data.dims:
        yield "", data
        return
    for stack in data[STACK].values.tolist():
        words = _STACKS.get(stack, f"{literal(stack)}: ") if data.sizes[STACK] > 1 else ""
        yield words, data.sel({STACK: stack}, drop=True)


def literal(text: object) -> str:
    """Text from outside, as it is: braces in it are no field of a template."""
    return str(text).replace("{", "{{").replace("}", "}}")


def the_category(category: str) -> str:
    """A category of token with its article."""
    return {"period_comma": "periods and commas"}.get(category, f"the {said(category)}")


def has(count: int) -> str:
    """The verb that goes with so many heads."""
    return "has" if count == 1 else "have"


def at_state(state: int, number: str = "where") -> str:
    """Where a hidden state is, as part of a template whose numbers name it."""
    return f"after layer {{{number}}}" if state else "in the embeddings"


def about_first_variable(result: Result) -> Iterator[Finding]:
    """The mean and both ends of the first variable that has a number for every head."""
    for name in shown(result):
        array = result.data[name]
        cells = heads(array) if set(array.dims) == {LAYER, HEAD} else []
        if cells:
            numbers = {
                "mean": float(array.mean()),
                "low": str(cells[-1]),
                "high": str(cells[0]),
                "variable": titled(name),
            }
            yield Finding(f"{literal(result.lens)}: mean {{variable}} {{mean:.3g}}, from {{low}} to {{high}}.", numbers)
            return
