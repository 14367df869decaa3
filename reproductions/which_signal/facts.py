"""What the prose needs to know: which signals lead, and where they do not."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import Any

from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.which_signal.grid import LANGUAGE, size_of
from reproductions.which_signal.readings import RANDOM, Place, Readings, title, words

_NOISY = 0.5
_COMPARED = ("gradient", "output_length", "confidence", "ablation_mean")
"""Whose agreement with single removals is shown by what stands in place of a head."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    readings = Readings(cells)
    cheap = [name for name in readings.signals if not name.startswith("ablation")]
    single = _ranked(readings, readings.rho, cheap)
    joint = _ranked(readings, readings.saved, readings.signals)
    noisy = [
        f"{place.name} ({title(stack)})"
        for place, stack in readings.every()
        if (ceiling := readings.ceiling(place, stack, "ablation_zero")) is not None and ceiling < _NOISY
    ]
    by_task = {
        "classifiers": [place for place in readings.places if readings.intact(place, "accuracy") is not None],
        "translation": [place for place in readings.places if "cross" in readings.stacks(place)],
        "language": [place for place in readings.places if readings.stacks(place) == ["decoder"]],
    }
    return {
        "by_task": {task: _within(readings, places) for task, places in by_task.items() if places},
        "harmful": [
            words(name)
            for name in readings.signals
            if by_task["classifiers"]
            and all(
                (value := readings.saved(p, "encoder", name)) is not None and value < 0 for p in by_task["classifiers"]
            )
        ],
        "length": _above_chance(readings, "output_length"),
        "by_share": _by_share(readings, ("gradient", "facilitation", "output_length")),
        "size": size_of(cells.settings),
        "language": LANGUAGE,
        "places": [place.name for place in readings.places],
        "stacks": len(list(readings.every())),
        "single": single,
        "joint": joint,
        "noisy": noisy,
        "by_mean": {name: _mean_of_all(readings, partial(readings.rho, how="mean"), name) for name in _COMPARED},
        "by_zero": {name: _mean_of_all(readings, readings.rho, name) for name in _COMPARED},
        "signals": len(readings.signals),
    }


def _mean_of_all(readings: Readings, read: Any, signal: str) -> float | None:
    known = [value for value in readings.of_places(read, signal) if value is not None]
    return mean(known) if known else None


def _above_chance(readings: Readings, signal: str) -> dict[str, int]:
    known = [value for value in readings.of_places(readings.saved, signal) if value is not None]
    return {"above": sum(value > 0 for value in known), "all": len(known)}


def _by_share(readings: Readings, names: Sequence[str]) -> dict[str, Any]:
    """What each signal avoids on average if the least and if the largest share of the heads goes.

    `least`: what random sets of the least share cost, in the stack that they cost least.
    """
    out: dict[str, Any] = {}
    for name in names:
        for share in (min(readings.shares), max(readings.shares)):
            each = readings.of_places(partial(readings.saved, share=share), name)
            known = [value for value in each if value is not None]
            if known:
                out.setdefault(name, []).append(mean(known))
    if not all(len(out.get(name, ())) > 1 for name in names):
        return {}
    few = min(readings.shares)
    known = [value for at in readings.every() if (value := readings.change(*at, RANDOM, few)) is not None]
    return {**out, "least": min(known)}


def _within(readings: Readings, places: list[Place]) -> dict[str, Any]:
    """Over the stacks of some models: the best cheap signal for single heads, and the ρ of the gradient."""
    cheap = [name for name in readings.signals if not name.startswith("ablation")]
    rho = {
        name: [v for p in places for s in readings.stacks(p) if (v := readings.rho(p, s, name)) is not None]
        for name in cheap
    }
    best = max((name for name in cheap if rho[name]), key=lambda name: mean(rho[name]))
    return {
        "best": words(best),
        "mean": mean(rho[best]),
        "gradient": mean(rho["gradient"]),
        "least": min(rho["gradient"]),
        "most": max(rho["gradient"]),
    }


def _ranked(readings: Readings, read: Any, names: list[str]) -> list[dict[str, Any]]:
    """The signals by their mean over models, with the least and the largest of all stacks."""
    out = []
    for name in names:
        known = [value for value in readings.of_places(read, name) if value is not None]
        each = [value for place, stack in readings.every() if (value := read(place, stack, name)) is not None]
        if known:
            out.append({"name": words(name), "mean": mean(known), "least": min(each), "most": max(each)})
    return sorted(out, key=lambda one: -one["mean"])
