"""What is read off the syntactic cells: the best head for each of the paper's relations, and UAS with intervals."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.frame.claims import Estimate

Row = Mapping[str, Any]
FEATURES = {
    "attention": "attention",
    "attention_vectors": "attention and GloVe",
    "vectors_distance": "GloVe and distance",
}
CLARKS_WAYS = ("to_head", "read_by_head")
"""The dependent's row, or the transposed matrix; the better on the development half is taken."""
_COUNTS = ("layer", "head", "pairs", "offset")


def row(data: xr.Dataset, **where: str) -> Row | None:
    """The numbers at one place; None if too few pairs were there."""
    if any(label not in data[name] for name, label in where.items()):
        return None
    numbers = {str(name): float(value) for name, value in data.sel(where).data_vars.items()}
    return {name: int(value) if name in _COUNTS else value for name, value in numbers.items()}


def best(data: xr.Dataset, stanford: str) -> Row | None:
    """The head and way that are best for a relation of the paper on the development half; None if it is too rare."""
    asked = STANFORD_TO_UD[stanford]
    ways = ("to_dependent",) if asked.swapped else CLARKS_WAYS
    rows = [{**one, "way": way} for way in ways if (one := row(data, relation=asked.relation, way=way)) is not None]
    return max(rows, key=lambda one: one["development"]) if rows else None


def accuracy(one: Row, over: str = "pairs") -> Estimate:
    """With Wilson's interval, whose errors are those of sentences or passages."""
    return Estimate(
        value=one["accuracy"],
        low=one["low"],
        high=one["high"],
        n=one["pairs"],
        over=over,
        method="Wilson, errors over texts",
    )


def gain(one: Row) -> Estimate:
    """Accuracy less that of the best offset; errors added as if the two were of different words, which is too wide."""
    less = one["accuracy"] - one["baseline"]
    down = ((one["accuracy"] - one["low"]) ** 2 + (one["baseline_high"] - one["baseline"]) ** 2) ** 0.5
    up = ((one["high"] - one["accuracy"]) ** 2 + (one["baseline"] - one["baseline_low"]) ** 2) ** 0.5
    return Estimate(
        value=less, low=less - down, high=less + up, n=one["pairs"], over="pairs", method="Wilson, errors over texts"
    )


def uas(data: xr.Dataset, features: str, decoding: str = "argmax") -> Estimate | None:
    """UAS without punctuation on the held-out sentences; None where the probe was not trained."""
    if features not in data["features"]:
        return None
    where = {"features": features, "decoding": decoding}
    mean, error = (float(data[name].sel(where)) for name in ("uas_words", "uas_words_se"))
    if mean != mean:
        return None
    return Estimate.of_many(mean, error, "sentences")


def less(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two UAS; errors added as if they were of different sentences, which is too wide."""
    widths = ((end.high or 0.0) - float(end.value or 0) for end in (one, other))
    return _even(float(one.value or 0) - float(other.value or 0), sum(width**2 for width in widths) ** 0.5)


def minus(one: Estimate, known: float) -> Estimate:
    """A number that is taken to be exact removed."""
    return _even(float(one.value or 0) - known, (one.high or 0.0) - float(one.value or 0))


def _even(value: float, width: float) -> Estimate:
    return Estimate(value=value, low=value - width, high=value + width, over="sentences", method="normal")


def next_word(data: xr.Dataset) -> float:
    """UAS of “the head is the next word”."""
    return float(data["head_is_next_uas_words"])
