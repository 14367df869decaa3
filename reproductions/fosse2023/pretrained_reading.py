"""What runs that differ in their seed say together, and what a matrix of cosines says of orthogonality."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reproductions.frame.estimates import Estimate, estimate

ORTHOGONAL = 0.2
"""A cosine of at most this much, either way, is called orthogonal; fixed before anything was measured."""
NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}


def at(*path: str | int) -> Callable[[Any], float | None]:
    """Picks what lies at the end of these keys and places; None where nothing does."""

    def pick(one: Any) -> float | None:
        for step in path:
            if one is None:
                return None
            one = one[step]
        return None if one is None else float(one)

    return pick


def over_seeds(results: Sequence[Any], pick: Callable[[Any], float | None]) -> Estimate | None:
    """The mean over runs of one number, of the runs that have it; None if no run has it."""
    values = [value for value in map(pick, results) if value is not None]
    return estimate(values) if values else None


def mean_of(results: Sequence[Any], pick: Callable[[Any], float | None]) -> float | None:
    found = over_seeds(results, pick)
    return None if found is None else found.mean


def off_diagonal(results: Sequence[Any], matrix: Callable[[Any], Any]) -> dict[tuple[int, int], Estimate]:
    """(direction, class) → the mean over runs, for pairs of different classes."""
    size = len(matrix(results[0]))
    pairs = [(i, j) for i in range(size) for j in range(size) if i != j]
    matrices = [matrix(one) for one in results]
    found = {pair: over_seeds(matrices, at(*pair)) for pair in pairs}
    return {pair: value for pair, value in found.items() if value is not None}


def furthest(found: dict[tuple[int, int], Estimate]) -> tuple[tuple[int, int], Estimate]:
    """The pair whose cosine is furthest from zero."""
    pair = max(found, key=lambda one: abs(found[one].mean))
    return pair, found[pair]


def all_within(found: Iterable[Estimate], bound: float = ORTHOGONAL) -> str:
    """Holds if every interval lies within ± the bound, does not if one lies wholly beyond it."""
    ranges = [one.interval for one in found]
    if any(interval is not None and (interval[0] > bound or interval[1] < -bound) for interval in ranges):
        return "does not hold"
    if all(interval is not None and -bound <= interval[0] and interval[1] <= bound for interval in ranges):
        return "holds"
    return "cannot tell"


def all_above(found: Sequence[Estimate], bound: float) -> str:
    """Holds if every interval lies above the bound, does not if one lies wholly below it."""
    ranges = [one.interval for one in found]
    if any(interval is not None and interval[1] < bound for interval in ranges):
        return "does not hold"
    return "holds" if all(interval is not None and interval[0] > bound for interval in ranges) else "cannot tell"


def average(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
