"""The head atlas: one card per head, with every lens's numbers and a sentence that shows the head at work."""

from collections.abc import Sequence
from dataclasses import dataclass

import xarray as xr

from lorgnette import lens as lenses
from lorgnette.axes import HEAD, LAYER, STACK
from lorgnette.figures.finding import head_places, written
from lorgnette.figures.lens_report import HeadPlace, HeadRole, Measure
from lorgnette.reporting.contents import in_order
from lorgnette.reporting.curves import has_steps
from lorgnette.reporting.head_example import HeadExample, head_examples
from lorgnette.results import Results
from lorgnette.types import Json

_NO_ROLE = HeadRole("no role found", "none")
_NOT_ASKED = HeadRole("", "none")


@dataclass(frozen=True)
class Fact:
    """A number of a head: `value` as it is in the result, `text` as it is shown, `length` of its bar out of 20."""

    name: str
    value: float
    text: str
    length: int


@dataclass(frozen=True)
class Card:
    """Everything known about one head."""

    stack: str
    layer: int
    head: int
    role: str
    family: str
    facts: tuple[Fact, ...]
    example: HeadExample | None

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.head}"


def atlas(results: Results, examples: Sequence[Json] = ()) -> list[Card]:
    """A card for every head with a number from any lens, in the order of stacks, layers and heads."""
    known = measures(results)
    if not known:
        return []
    roles, shown = _roles(results), head_examples(examples)
    # Without a lens that looks for roles nothing is said of them.
    without = _NO_ROLE if roles else _NOT_ASKED
    tops = {measure.name: float(abs(measure.array).max()) or 1.0 for measure in known}
    places = dict.fromkeys(place for measure in known for place in head_places(measure.array))
    order = {stack: number for number, stack in enumerate(dict.fromkeys(stack for stack, *_ in places))}
    cards = []
    for place in sorted(places, key=lambda place: (order[place[0]], *place[1:])):
        facts = []
        for measure in known:
            value = _at(measure.array, place)
            if value is not None:
                length = round(20 * abs(value) / tops[measure.name])
                facts.append(Fact(measure.name, value, written(value, measure.form), length))
        role = roles.get(place, without)
        cards.append(Card(*place, role.words, role.family, tuple(facts), shown.get(place)))
    return cards


def measures(results: Results) -> list[Measure]:
    """What a card says in numbers, as far as there are results for it; of two measures of one name, the first."""
    out: dict[str, Measure] = {}
    for result in in_order(results).values():
        for measure in () if has_steps(result) else lenses.report_of(result.lens).cards(result):
            if bool(measure.array.notnull().any()):
                out.setdefault(measure.name, measure)
    return list(out.values())


def _roles(results: Results) -> dict[HeadPlace, HeadRole]:
    """What each head is for, from the last lens of the page that says so: what was tested stands for what was seen."""
    out: dict[HeadPlace, HeadRole] = {}
    for result in in_order(results).values():
        if (roles := lenses.report_of(result.lens).roles) is not None and not has_steps(result):
            out = dict(roles(result))
    return out


def _at(array: xr.DataArray, place: HeadPlace) -> float | None:
    try:
        value = float(array.sel(dict(zip((STACK, LAYER, HEAD), place, strict=True))))
    except KeyError:  # a stack that this lens does not look at
        return None
    return None if value != value else value
