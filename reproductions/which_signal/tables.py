"""Every signal on every model: one head at a time, and half of the heads together."""

from statistics import mean

import pandas as pd

from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.which_signal.readings import RANDOM, Place, Reading, Readings, title, words


def tables(cells: Finished) -> list[Table]:
    readings = Readings(cells)
    return [_single(readings), _joint(readings), *_accuracy(readings), _ceilings(readings)]


def _single(readings: Readings) -> Table:
    note = "Spearman's ρ with the change of the loss when the head's output is zero, on other texts; mean over seeds."
    return Table("single", "One head at a time", _frame(readings, readings.rho, readings.signals), note)


def _joint(readings: Readings) -> Table:
    note = (
        "1 − Δ / Δ_random, Δ the change of the loss when half of the heads of the stack go at once, the least "
        "important by the signal first. 1: nothing is lost; 0: as much as by chance; below 0: more."
    )
    return Table("joint", "Half of the heads together", _frame(readings, readings.saved, readings.signals), note)


def _ceilings(readings: Readings) -> Table:
    note = "√(reliability of the signal · reliability of ablation): noise of the texts alone keeps ρ below it."
    return Table(
        "ceilings",
        "The largest ρ that noise lets one expect",
        _frame(readings, readings.ceiling, readings.signals),
        note,
    )


def _accuracy(readings: Readings) -> list[Table]:
    """Accuracy of the classifiers that is left, by share of heads."""
    out = []
    for place in readings.places:
        intact = readings.intact(place, "accuracy")
        if intact is None:
            continue
        rows = []
        for signal in (*readings.signals, RANDOM):
            row: dict[str, object] = {"ranked by": words(signal)}
            for share in readings.shares:
                change = readings.change(place, "encoder", signal, share, "accuracy")
                row[f"{share:.0%} gone"] = None if change is None else intact + change
            rows.append(row)
        note = f"The intact model has {intact:.3f}. Mean over seeds."
        key = f"accuracy-{place.model}-{place.corpus}"
        out.append(Table(key, f"Accuracy without the least important heads: {place.name}", pd.DataFrame(rows), note))
    return out


def _frame(readings: Readings, read: Reading, signals: list[str]) -> pd.DataFrame:
    rows = []
    for signal in signals:
        values = {_column(readings, place, stack): read(place, stack, signal) for place, stack in readings.every()}
        known = [value for value in readings.of_places(read, signal) if value is not None]
        rows.append({"signal": words(signal), "mean": mean(known) if known else None, **values})
    frame = pd.DataFrame(rows).astype({"mean": float})
    return frame.sort_values("mean", ascending=False, kind="stable").reset_index(drop=True)


def _column(readings: Readings, place: Place, stack: str) -> str:
    several = len(readings.stacks(place)) > 1
    return f"{place.name}: {title(stack)}" if several else place.name
