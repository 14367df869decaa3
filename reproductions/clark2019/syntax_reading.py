"""What is read off the syntactic cells: the best head for each of the paper's relations, and UAS with intervals."""

from collections.abc import Mapping
from typing import Any

from reproductions.clark2019.stanford import STANFORD_TO_UD

CLARKS_WAYS = ("to_head", "read_by_head")
"""The dependent's row, or the transposed matrix; the better on the development half is taken."""
DECODINGS = ("argmax", "tree")


def best(cell: Mapping[str, Any], stanford: str) -> Mapping[str, Any] | None:
    """The row of the head that is best for a relation of the paper on the development half; None if it is too rare."""
    asked = STANFORD_TO_UD[stanford]
    ways = ("to_dependent",) if asked.swapped else CLARKS_WAYS
    rows = [row for row in cell["rows"] if row["relation"] == asked.relation and row["way"] in ways]
    return max(rows, key=lambda row: row["development"]) if rows else None


def ranged(row: Mapping[str, Any]) -> str:
    return f"{row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def gain(row: Mapping[str, Any]) -> tuple[float, float, float]:
    """Accuracy less that of the best offset; errors added as if the two were of different words, which is too wide."""
    less = float(row["accuracy"] - row["baseline"])
    down = ((row["accuracy"] - row["low"]) ** 2 + (row["baseline_high"] - row["baseline"]) ** 2) ** 0.5
    up = ((row["high"] - row["accuracy"]) ** 2 + (row["baseline"] - row["baseline_low"]) ** 2) ** 0.5
    return less, less - down, less + up


def uas(cell: Mapping[str, Any], features: str, decoding: str = "argmax", score: str = "uas_words") -> Any:
    """(UAS, low, high) on the held-out sentences; None where the probe was not trained."""
    found = cell["features"].get(features)
    at = DECODINGS.index(decoding)
    if found is None or found[score][at] is None:
        return None
    mean, error = found[score][at], found[f"{score}_se"][at]
    return mean, mean - 1.96 * error, mean + 1.96 * error


def next_word(cell: Mapping[str, Any], score: str = "uas_words") -> float:
    return float(cell["head_is_next"][score])
