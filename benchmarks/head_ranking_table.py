"""The tables of `benchmarks.head_ranking`: one for each model and corpus, and what they say together."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lorgnette.statistics.estimate import Estimate

SHARES = ("0.25", "0.5", "0.75")
RANDOM = "random"

Accuracy = dict[str, dict[str, list[float]]]


def table(folder: Path) -> str:
    """Markdown from the files in a folder."""
    cells = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return "\n\n".join(["\n".join(_cell(cell)) for cell in cells] + (["\n".join(_together(cells))] if cells else []))


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    accuracy: Accuracy = cell["accuracy"]
    (whole,) = accuracy["whole model"]["0.0"]
    yield (
        f"| {cell['model']}, {cell['corpus']}: {cell['heads']} heads, whole model {_short(whole)} | "
        + " | ".join(f"{float(share):.0%} gone" for share in SHARES)
        + " |"
    )
    yield "|---|---|---|---|"
    for label in _labels([cell]):
        values = [accuracy[label].get(share, []) for share in SHARES]
        yield f"| {label} | " + " | ".join(_estimate(each) for each in values) + " |"


def _together(cells: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Gain over random sets, mean over models and corpora; their t interval; how often a method is not above chance."""
    yield (
        f"| mean of {len(cells)}, minus random | "
        + " | ".join(f"{float(s):.0%} gone" for s in SHARES)
        + (" | all sizes | not above random |")
    )
    yield "|---|---|---|---|---|---|"
    for label in _labels(cells):
        gains = np.array([[_gain(cell["accuracy"], label, share) for share in SHARES] for cell in cells])
        low, high = Estimate.mean(gains.mean(1)).interval
        each = " | ".join(f"{value:+.3f}" for value in gains.mean(0))
        yield (
            f"| {label} | {each} | {gains.mean():+.3f} [{low:+.3f}, {high:+.3f}] | {(gains <= 0).sum()} of "
            f"{gains.size} |"
        )


def _labels(cells: Sequence[dict[str, Any]]) -> list[str]:
    common = [label for label in cells[0]["accuracy"] if all(label in cell["accuracy"] for cell in cells)]
    return [label for label in common if label != "whole model"]


def _gain(accuracy: Accuracy, label: str, share: str) -> float:
    return float(np.mean(accuracy[label][share]) - np.mean(accuracy[RANDOM][share]))


def _estimate(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return _short(values[0])
    low, high = Estimate.mean(values).interval
    return f"{_short(float(np.mean(values)))} [{_short(low)}, {_short(high)}]"


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
