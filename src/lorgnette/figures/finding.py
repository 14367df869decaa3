"""A sentence with its numbers, and the heads that it is about."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

import xarray as xr

from lorgnette.axes import HEAD, LAYER, STACK

HALF = 0.5


def written(value: float | int, form: str) -> str:
    """A number in a sentence: with a minus sign, and a space before the sign of a percentage."""
    text = format(value, form)
    return (f"−{text[1:]}" if text.startswith("-") else text).replace("%", " %")


def decimals(*halves: float, least: int = 2, digits: int = 1) -> int:
    """Decimals that show so many digits of the narrowest interval (half widths), and at least `least`.

    Two numbers whose intervals do not overlap are then never printed alike. Half widths of 0, and unknown ones, ask for
    nothing.
    """
    widths = [half for half in halves if half > 0 and math.isfinite(half)]
    return max([least, *(digits - 1 - math.floor(math.log10(half)) for half in widths)]) if widths else least


@dataclass(frozen=True)
class Finding:
    """A sentence with named numbers: `Finding("{count} of {heads} heads …", {"count": 38, "heads": 72})`.

    `figure` names the figure of the lens that shows it, if that is not the first. `nothing` marks a sentence that says
    that nothing was found: a page opens with others, if it can.
    """

    template: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    figure: str = ""
    nothing: bool = False

    @property
    def text(self) -> str:
        return "".join(part for part, _ in self.parts)

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The sentence in pieces, with True for those that are numbers."""
        out = []
        for words, name, form, _ in Formatter().parse(self.template):
            if words:
                out.append((words, False))
            if name is not None:
                value = self.numbers[name]
                is_number = isinstance(value, int | float)
                words = written(value, form or ("," if isinstance(value, int) else "")) if is_number else str(value)
                out.append((words, is_number))
        return out


@dataclass(frozen=True)
class HeadValue:
    """One head and a number of it."""

    layer: int
    head: int
    value: float

    def __str__(self) -> str:
        return f"{self.layer}.{self.head} ({written(self.value, '.2f')})"


def heads(array: xr.DataArray) -> list[HeadValue]:
    """Every existing head, the highest value first; ties in the order of layers and heads."""
    flat = array.stack(cell=(LAYER, HEAD)).dropna("cell")
    values = [HeadValue(int(c[LAYER].item()), int(c[HEAD].item()), float(c.item())) for c in flat]
    return sorted(values, key=lambda one: (-one.value, one.layer, one.head))


def named_above(some: Sequence[HeadValue], threshold: float = HALF) -> str:
    """Heads above a threshold with their values, in as many digits as it takes to see that they are above it."""
    return ", ".join(f"{one.layer}.{one.head} ({_told_from(one.value, threshold)})" for one in some)


def _told_from(value: float, threshold: float) -> str:
    return next(text for digits in range(2, 18) if float(text := f"{value:.{digits}f}") != threshold or digits == 17)


def above(array: xr.DataArray, threshold: float = HALF) -> list[HeadValue]:
    """The heads above a threshold, the highest first."""
    return [one for one in heads(array) if one.value > threshold]


def head_places(array: xr.DataArray) -> list[tuple[str, int, int]]:
    """Stack, layer and head of every head that has a number."""
    flat = array.stack(cell=(STACK, LAYER, HEAD)).dropna("cell")
    return [(str(stack), int(layer), int(head)) for stack, layer, head in flat["cell"].values.tolist()]
