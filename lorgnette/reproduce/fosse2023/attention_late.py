"""Whether it is a matter of how long one trains: the same models with the weights of a late epoch."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from lorgnette.reproduce.fosse2023 import grid
from lorgnette.reproduce.fosse2023.outcome import NAMES, Outcome, accuracy, sharpness, similarity
from lorgnette.reproduce.record import Table

_SAID = {"best": "best by validation loss", "late": "after {epochs:g} epochs"}


def late_table(outcome: Outcome) -> Iterator[Table]:
    """The first seed at some points, with each kind of weights; nothing if there are no late ones."""
    rows = []
    for corpus in outcome.corpora:
        for point in grid.LATE_POINTS:
            found = runs(outcome, corpus, point)
            rows += [_row(corpus, point, kind, one) for kind, one in found.items() if len(found) > 1]
    if rows:
        note = (
            "The first seed. SIM(K) and SIM(V): last layer, the texts of the published tables. H: first layer. "
            "Accuracy on the training texts is that of the last epoch, also where earlier weights were kept."
        )
        yield Table("The same models with the weights of a late epoch", pd.DataFrame(rows), note)


def runs(outcome: Outcome, corpus: str, point: tuple[int, float]) -> Mapping[str, Any]:
    """Kind of weights → result, of the first seed."""
    keys = {kind: grid.Run(corpus, grid.MAIN, *point, outcome.seeds[0], kind == "late").key for kind in _SAID}
    return {kind: outcome.results[key] for kind, key in keys.items() if key in outcome.results}


def _row(corpus: str, point: tuple[int, float], kind: str, one: Any) -> dict[str, Any]:
    return {
        "corpus": NAMES[corpus],
        "L": point[0],
        "λ": f"{point[1]:g}",
        "weights": _SAID[kind].format(epochs=one["epochs"]),
        "training accuracy": one["curve"][-1]["train"]["accuracy"],
        "test accuracy": accuracy(one),
        "H": sharpness()(one),
        "SIM(K)": similarity("key", -1)(one),
        "SIM(V)": similarity("value", -1)(one),
    }


def late_summary(outcome: Outcome) -> Iterator[str]:
    """What longer training does to the deepest model's values, and to a weak penalty."""
    parts = []
    for corpus in outcome.corpora:
        deep, weak = (runs(outcome, corpus, point) for point in (grid.LATE_POINTS[-1], grid.LATE_POINTS[1]))
        if {"best", "late"} <= set(deep) and {"best", "late"} <= set(weak):
            stiff = [similarity("value", -1)(deep[kind]) for kind in ("best", "late")]
            sharp = [sharpness()(weak[kind]) for kind in ("best", "late")]
            parts.append(
                f"{NAMES[corpus]}: SIM of the last layer's values (L = {grid.LATE_POINTS[-1][0]}) {stiff[0]:.2f} → "
                f"{stiff[1]:.2f}, H with λ = {grid.LATE_POINTS[1][1]:g} {sharp[0]:.2f} → {sharp[1]:.2f}"
            )
    if parts:
        epochs = grid.LATE["epochs"]
        yield f"**Is it a matter of how long one trains?** From the best weights to those of epoch {epochs}. " + (
            "; ".join(parts) + ". One seed each."
        )
