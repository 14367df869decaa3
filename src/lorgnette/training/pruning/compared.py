"""The pruned model beside others that were trained as long: the whole one, a random choice, random weights."""

from collections.abc import Mapping

from lorgnette.training.pruning.score import METRICS, Score, metric_of
from lorgnette.types import Json

NOUNS = {
    "tuned": "the whole model",
    "random": "a random choice",
    "scratch": "a model of the same shape from random weights",
}
"""What a pruned model is compared with, by the key in its record."""


def compared(after: Score, other: Score, epochs: int) -> Json:
    """The record of another model, and of how the pruned one differs from it."""
    value, interval = after.minus(other)
    return other.record() | {"difference": {"value": value, "interval": list(interval)}, "epochs": epochs}


def tuned_notes(after: Score, others: Mapping[str, Score]) -> list[str]:
    """A note for each model that does as well as the pruned one or better."""
    digits, said = METRICS[after.metric], []
    for name, other in others.items():
        better = after.value - other.value if after.metric == "perplexity" else other.value - after.value
        if better < 0:
            continue
        value, (low, high) = after.minus(other)
        said.append(
            f"{NOUNS[name]}, trained as long, did as well as this one or better: {after.metric} "
            f"{other.value:.{digits}f} against {after.value:.{digits}f}; this one differs by {value:+.{digits}f} "
            f"[{low:+.{digits}f}, {high:+.{digits}f}]."
        )
    return said


def comparison_lines(record: Json) -> list[str]:
    """The pruned model beside the others, a line for each."""
    said = []
    for key, noun in NOUNS.items():
        if (other := record.get(key)) is None:
            continue
        (name, digits), change = metric_of(other), other["difference"]
        low, high = change["interval"]
        said.append(
            f"{noun}, trained as long: {name} {other[name]:.{digits}f}; the pruned model differs by "
            f"{change['value']:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
        )
    return said
