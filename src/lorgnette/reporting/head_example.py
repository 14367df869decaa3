"""An example for a head: the word, among some packed texts, whose row shows the head best."""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

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
