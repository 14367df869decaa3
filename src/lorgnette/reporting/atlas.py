"""The head atlas: one card per head, with every lens's numbers and a sentence that shows the head at work."""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from lorgnette import lens as lenses
from lorgnette.axes import HEAD, LAYER, STACK
from lorgnette.figures.finding import head_places, written
from lorgnette.figures.lens_report import HeadPlace, HeadRole, Measure
from lorgnette.reporting.contents import in_order
from lorgnette.reporting.curves import has_steps
from lorgnette.results import Results
from lorgnette.types import Json

LEVELS = 9
_LEAST = 0.02  # a weight below it is not shaded


@dataclass(frozen=True)
class HeadExample:
    """One row of a head: `words` with the strength (0 to 9) at which each is read, `reader` the word that reads."""

    example: int
    words: tuple[tuple[str, int], ...]
    reader: str
    at: int | None
    read: str
    weight: float


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


def head_examples(examples: Sequence[Json]) -> dict[tuple[str, int, int], HeadExample]:
    """For every head of the packed texts, the row with the largest weight on a word other than the reader itself."""
    best: dict[tuple[str, int, int], HeadExample] = {}
    for number, document in enumerate(examples):
        for stack in document["stacks"]:
            rows, cols = document["sides"][stack["queries"]], document["sides"][stack["keys"]]
            own = stack["queries"] == stack["keys"]
            for layer, packed in enumerate(stack["weights"], 1):
                weights = _unpacked(packed, stack["heads"], len(rows["pieces"]), len(cols["pieces"]))
                words = _between_words(weights, rows["word"], cols["word"])
                for head, matrix in enumerate(words, 1):
                    example = _example_of(matrix, rows, cols, own, number)
                    place = (stack["name"], layer, head)
                    if example is not None and (place not in best or example.weight > best[place].weight):
                        best[place] = example
    return best


def _unpacked(packed: str, heads: int, queries: int, keys: int) -> Float[np.ndarray, "head query key"]:
    """α from the bytes round(255 √α)."""
    roots = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.uint8).astype(np.float64)
    return (roots.reshape(heads, queries, keys) / 255) ** 2


def _between_words(
    weights: Float[np.ndarray, "head query key"], rows: Sequence[int], cols: Sequence[int]
) -> Float[np.ndarray, "head word other"]:
    """To a word the sum over its pieces, from a word the mean."""
    to = np.zeros((len(cols), max(cols) + 1))
    to[np.arange(len(cols)), cols] = 1
    of = np.zeros((max(rows) + 1, len(rows)))
    of[rows, np.arange(len(rows))] = 1
    return (of / of.sum(1, keepdims=True)) @ weights @ to


def _example_of(
    matrix: Float[np.ndarray, "word other"], rows: Json, cols: Json, own: bool, number: int
) -> HeadExample | None:
    queries, keys = _words(rows), _words(cols)
    cells = matrix.copy()
    cells[~queries] = -1
    cells[:, ~keys] = -1
    if own:
        np.fill_diagonal(cells, -1)
    if not queries.any() or cells.max() < 0:
        return None
    i, j = np.unravel_index(int(cells.argmax()), cells.shape)
    shade = [0 if value < _LEAST else max(1, round(LEVELS * float(np.sqrt(min(1.0, value))))) for value in matrix[i]]
    words = tuple(zip(cols["words"], shade, strict=True))
    return HeadExample(number, words, rows["words"][i], int(i) if own else None, cols["words"][j], float(matrix[i, j]))


def _words(side: Json) -> Bool[np.ndarray, " word"]:
    """Words with a letter or a digit; all words, if there are none."""
    own = np.array(side["index"]) >= 0
    lettered = own & np.array([any(map(str.isalnum, word)) for word in side["words"]])
    return lettered if lettered.any() else own
