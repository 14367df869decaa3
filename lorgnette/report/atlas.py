"""The head atlas: one card per head, with what every lens knows of it and a sentence in which it can be seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from lorgnette.axes import CATEGORY, HEAD, LAYER, PART, STACK
from lorgnette.figures.cells import PARTITION, said
from lorgnette.report.head_example import Seen, seen_heads
from lorgnette.report.heads import family
from lorgnette.report.pruning import changes
from lorgnette.results import Result, Results

NO_ROLE = "no role found"
_KINDS = {"cls": "special tokens", "sep": "special tokens", "period_comma": "punctuation", "broad": "broad"}
_KINDS |= dict.fromkeys(("previous", "next", "self"), "positional")


@dataclass(frozen=True)
class Fact:
    """A number of a head: `value` as it is in the result, `text` as it is shown, `length` of its bar out of 20."""

    name: str
    value: float
    text: str
    length: int


@dataclass(frozen=True)
class Card:
    """All that is known of one head."""

    stack: str
    layer: int
    head: int
    role: str
    family: str
    facts: tuple[Fact, ...]
    seen: Seen | None

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class Measure:
    """A number that every head has: the array, what it is called, what it means, and how it is written."""

    name: str
    about: str
    array: xr.DataArray
    form: str = ".2f"


def atlas(results: Results, examples: Sequence[Mapping[str, Any]] = ()) -> list[Card]:
    """A card per head that any of the lenses knows a number of, in the order of stacks, layers and heads."""
    known = measures(results)
    if not known:
        return []
    roles, seen = _roles(results), seen_heads(examples)
    tops = {measure.name: float(abs(measure.array).max()) or 1.0 for measure in known}
    places = dict.fromkeys(place for measure in known for place in _places(measure.array))
    order = {stack: number for number, stack in enumerate(dict.fromkeys(stack for stack, *_ in places))}
    cards = []
    for stack, layer, head in sorted(places, key=lambda place: (order[place[0]], *place[1:])):
        facts = []
        for measure in known:
            value = _at(measure.array, stack, layer, head)
            if value is not None:
                length = round(20 * abs(value) / tops[measure.name])
                facts.append(Fact(measure.name, value, format(value, measure.form), length))
        # Without a lens that looks for roles nothing is said of them.
        role, kind = roles.get((stack, layer, head), (NO_ROLE if roles else "", "none"))
        cards.append(Card(stack, layer, head, role, kind, tuple(facts), seen.get((stack, layer, head))))
    return cards


def measures(results: Results) -> list[Measure]:
    """What a card says in numbers, as far as there are results for it."""
    by_lens = {result.lens: result.data for result in results.values()}
    out = []
    if "weights" in by_lens:
        out.append(Measure("confidence", "largest weight on a word, mean", by_lens["weights"]["confidence"]))
        out.append(Measure("entropy", "of what is possible", by_lens["weights"]["entropy_normalised"]))
    elif "roles" in by_lens:
        out.append(Measure("confidence", "largest weight on a word, mean", by_lens["roles"]["confidence"].mean(PART)))
    if "norms" in by_lens:
        out.append(Measure("norm", "share of what its layer moves", norm_shares(by_lens["norms"]), ".1%"))
    if "relevance" in by_lens:
        out.append(Measure("relevance", "share of its layer's", by_lens["relevance"]["relevance"], "+.2f"))
    importance = next((result for result in results.values() if result.lens == "importance"), None)
    if importance is not None:
        found = changes(importance)
        if found is not None:
            out.append(Measure("importance", "growth of the loss without it", found[0], "+.3f"))
        else:
            out.append(Measure("importance", "|∂loss/∂gate|", importance.data["sensitivity"], ".3f"))
    return [measure for measure in out if bool(measure.array.notnull().any())]


def norm_shares(data: xr.Dataset) -> xr.DataArray:
    """A head's share of Σ_j ‖α f(x_j)‖ of its layer."""
    kinds = [kind for kind in PARTITION if kind in data[CATEGORY].values]
    moved = data["norm"].sel({CATEGORY: kinds}).sum(CATEGORY, min_count=1)
    return moved / moved.sum(HEAD)


def _roles(results: Results) -> dict[tuple[str, int, int], tuple[str, str]]:
    """Role in words and its family, from the lens roles or, without it, from what the map of heads calls a head."""
    by_lens: dict[str, Result] = {result.lens: result for result in results.values()}
    out = {}
    if "roles" in by_lens:
        data = by_lens["roles"].data
        for place in _places(data["confidence"].mean(PART)):
            cell = dict(zip((STACK, LAYER, HEAD), place, strict=True))
            words = str(data["roles"].sel(cell).item())
            given = [
                str(role) for role in data["label"]["role"].values if bool(data["label"].sel({**cell, "role": role}))
            ]
            out[place] = (words.replace("_", "-") if given else NO_ROLE, family(given))
    elif "distances" in by_lens and "kind" in by_lens["distances"].data:
        kind = by_lens["distances"].data["kind"]
        for place in _places(by_lens["distances"].data["x"]):
            label = kind.sel(dict(zip((STACK, LAYER, HEAD), place, strict=True))).item()
            if isinstance(label, str) and label != "other":
                words = "broad" if label == "broad" else f"reads the {said(label).removeprefix('the ')}"
                out[place] = (words, _KINDS.get(label, "none"))
    return out


def _places(array: xr.DataArray) -> list[tuple[str, int, int]]:
    """Heads that have a number."""
    flat = array.stack(cell=(STACK, LAYER, HEAD)).dropna("cell")
    return [(str(stack), int(layer), int(head)) for stack, layer, head in flat["cell"].values.tolist()]


def _at(array: xr.DataArray, stack: str, layer: int, head: int) -> float | None:
    try:
        value = float(array.sel({STACK: stack, LAYER: layer, HEAD: head}))
    except KeyError:  # a stack that this lens does not look at
        return None
    return None if value != value else value
