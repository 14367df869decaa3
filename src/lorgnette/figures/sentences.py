"""Words that the findings of several lenses share, and the sentence of a lens that has none of its own."""

from collections.abc import Iterator, Sequence

import xarray as xr

from lorgnette.axes import HEAD, LAYER, STACK
from lorgnette.figures.cells import said, shown, titled
from lorgnette.figures.doubt import head_extreme
from lorgnette.figures.finding import Finding, HeadValue, decimals, heads, written
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate

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
    """External text with its braces escaped, so that it is never a field of a template."""
    return str(text).replace("{", "{{").replace("}", "}}")


def the_category(category: str) -> str:
    """A category of token with its article."""
    return {"period_comma": "periods and commas"}.get(category, f"the {said(category)}")


def has(count: int) -> str:
    """The verb form for this number of heads."""
    return "has" if count == 1 else "have"


def over_texts(means: Estimate) -> str:
    """ " (3 texts)": what a sentence adds that finds nothing significant."""
    texts = int(means.count.max()) if bool(means.count.notnull().any()) else 0
    return f" ({counted_texts(texts)})" if texts else ""


def counted_texts(count: int) -> str:
    """ "1 text", "1,200 texts"."""
    return f"{count:,} {'text' if count == 1 else 'texts'}"


def at_state(state: int, number: str = "where") -> str:
    """Where a hidden state is, as part of a template whose numbers name it."""
    return f"after layer {{{number}}}" if state else "in the embeddings"


def significant_heads(
    sizes: Estimate, sure: xr.DataArray, values: xr.DataArray | None = None, q: xr.DataArray | None = None
) -> tuple[str, str]:
    """The largest of the heads that are `sure`, by name, and what to add on how the first compares with all others.

    `sizes` rank the heads; `values` are printed for them if they differ (an effect may be negative), and `q` says how
    sure it is that each differs from the largest. Where the largest of all is not significant, the addition says so.
    """
    signed = sizes.value if values is None else values
    some = heads(sizes.value.where(sure))[:NAMED]
    if not some:
        return "", ""
    paired = {} if q is None else {"x_top_q": q}
    best, names = head_extreme(xr.Dataset({"x": sizes.value, "x_se": sizes.se, "x_count": sizes.count, **paired}), "x")
    top = names[best.place]
    if top != f"{some[0].layer}.{some[0].head}":
        one = heads(sizes.value)[0]
        doubt = f"; the estimate for {with_values(sizes, [one], signed)} is larger, but not significant"
    else:
        doubt = f"; the first is{best.beside(names).removeprefix(',')}" if best.comparable else ""
    return with_values(sizes, some, signed), doubt


def with_values(sizes: Estimate, some: Sequence[HeadValue], values: xr.DataArray, sign: str = "+") -> str:
    """Heads with their values, in as many decimals as it takes to see which of them differ significantly."""
    places = [{LAYER: one.layer, HEAD: one.head} for one in some]
    halves = [float(sizes.half.sel(place)) for place in places]
    form = f"{sign}.{decimals(*halves)}f" if all(half > 0 for half in halves) else f"{sign}.2g"
    return ", ".join(f"{place[LAYER]}.{place[HEAD]} ({written(float(values.sel(place)), form)})" for place in places)


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
