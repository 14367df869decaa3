"""Whether it is a matter of how long one trains: the same models with the weights of a late epoch."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

import pandas as pd

from reproductions.fosse2023 import grid
from reproductions.fosse2023.outcome import NAMES, Measure, Outcome, accuracy, sharpness, similarity
from reproductions.frame.record import Table

_SAID = {"best": "best by validation loss", "late": "after {epochs:g} epochs"}


def late_table(outcome: Outcome) -> Iterator[Table]:
    """Some points with each kind of weights, by the seeds that have both; nothing if there are no late ones."""
    rows = []
    for corpus in outcome.corpora:
        for point in grid.LATE_POINTS:
            rows += [_row(corpus, point, kind, some) for kind, some in runs(outcome, corpus, point).items()]
    if rows:
        note = (
            "Means over seeds. SIM(K) and SIM(V): last layer, the texts of the published tables. H: first layer. "
            "Accuracy on the training texts is that of the last epoch, also where earlier weights were kept."
        )
        yield Table("The same models with the weights of a late epoch", pd.DataFrame(rows), note)


def runs(outcome: Outcome, corpus: str, point: tuple[int, float]) -> Mapping[str, Sequence[Any]]:
    """Kind of weights → results, of the seeds that have both kinds."""
    found: dict[str, list[Any]] = {kind: [] for kind in _SAID}
    for seed in outcome.seeds:
        keys = {kind: grid.Run(corpus, grid.MAIN, *point, seed, kind == "late").key for kind in _SAID}
        if all(key in outcome.results for key in keys.values()):
            for kind, key in keys.items():
                found[kind].append(outcome.results[key])
    return found if found["late"] else {}


def _mean(measure: Measure, some: Sequence[Any]) -> float:
    return mean(measure(one) for one in some)


def _row(corpus: str, point: tuple[int, float], kind: str, some: Sequence[Any]) -> dict[str, Any]:
    return {
        "corpus": NAMES[corpus],
        "L": point[0],
        "λ": f"{point[1]:g}",
        "weights": _SAID[kind].format(epochs=grid.LATE["epochs"]),
        "seeds": len(some),
        "training accuracy": mean(one["curve"][-1]["train"]["accuracy"] for one in some),
        "test accuracy": _mean(accuracy, some),
        "H": _mean(sharpness(), some),
        "SIM(K)": _mean(similarity("key", -1), some),
        "SIM(V)": _mean(similarity("value", -1), some),
    }


def late_summary(outcome: Outcome) -> Iterator[str]:
    """What longer training does to the deepest model's values, and to a weak penalty."""
    parts, seeds = [], set()
    for corpus in outcome.corpora:
        deep, weak = (runs(outcome, corpus, point) for point in (grid.LATE_POINTS[-1], grid.LATE_POINTS[1]))
        if deep and weak:
            stiff = [_mean(similarity("value", -1), deep[kind]) for kind in ("best", "late")]
            sharp = [_mean(sharpness(), weak[kind]) for kind in ("best", "late")]
            seeds |= {len(deep["late"]), len(weak["late"])}
            parts.append(
                f"{NAMES[corpus]}: SIM of the last layer's values (L = {grid.LATE_POINTS[-1][0]}) {stiff[0]:.2f} → "
                f"{stiff[1]:.2f}, H with λ = {grid.LATE_POINTS[1][1]:g} {sharp[0]:.2f} → {sharp[1]:.2f}"
            )
    if parts:
        counted = " or ".join(map(str, sorted(seeds))) + (" seed" if seeds == {1} else " seeds")
        yield (
            "**Is it a matter of how long one trains?** From the best weights to those of epoch "
            f"{grid.LATE['epochs']}. " + "; ".join(parts) + f". Means of {counted}."
        )
