"""AER of layers and heads by measure; the best of each way, held out; baselines."""

from typing import Any

import numpy as np
import pandas as pd

from reproductions.frame.finished import Finished
from reproductions.frame.markdown import estimate
from reproductions.frame.page import Table
from reproductions.norms_align.claims import SAID, TARGET
from reproductions.norms_align.readings import LEVELS, MEASURES, RANDOM, READINGS, RULE_NAMES, WAYS, Readings, one_rate


def tables(cells: Finished) -> list[Table]:
    r = Readings(cells)
    return [_layers(r), *(_held_out(r, level) for level in LEVELS), _heads(r), _baselines(r, cells)]


def _layers(r: Readings) -> Table:
    rows = []
    for direction in r.directions:
        for reading in READINGS:
            for measure in MEASURES:
                rates = r.rates(direction, "layers", measure, (reading, TARGET))
                row: dict[str, Any] = {"direction": direction, "aligned": SAID[reading], "by": measure}
                rows.append(row | {str(n): rate for n, rate in enumerate(rates.tolist(), 1)} | {"mean": rates.mean()})
    note = "All pairs; a source word for each target word. Columns are layers of the decoder."
    return Table("layers", "AER of the heads of a layer together", pd.DataFrame(rows), note)


def _held_out(r: Readings, level: str) -> Table:
    rows = []
    for direction in r.directions:
        for way in (*WAYS, None):
            ways = WAYS if way is None else [way]
            row = {"direction": direction, "aligned": "best" if way is None else SAID[way[0]]}
            row["rule"] = "best" if way is None else RULE_NAMES[way[1]]
            for measure in MEASURES:
                row[measure] = estimate(one_rate(r.held_out(direction, level, measure, ways)))
            row["chosen by weights"], row["chosen by norms"] = (
                places(r, direction, level, measure, ways) for measure in ("weights", "norms")
            )
            rows.append(row)
    note = "Chosen on one half of the blocks and judged on the other, both ways; 95 % intervals over blocks of pairs."
    return Table(f"held-out-{level}", f"AER of the best of all {level}, held out", pd.DataFrame(rows), note)


def places(r: Readings, direction: str, level: str, measure: str, ways: Any) -> str:
    """What was chosen for each half: a layer, or layer.head; each once."""
    heads = r.cell(direction).sizes["head"]
    found = [
        str(place + 1) if level == "layers" else f"{place // heads + 1}.{place % heads + 1}"
        for _, place in r.chosen(direction, level, measure, ways)
    ]
    return ", ".join(dict.fromkeys(found))


def _heads(r: Readings) -> Table:
    rows = []
    for direction in r.directions:
        for measure in MEASURES:
            rates = r.rates(direction, "heads", measure, ("input", TARGET)).reshape(
                r.cell(direction).sizes["layer"], -1
            )
            for layer, values in enumerate(rates.tolist(), 1):
                row: dict[str, Any] = {"direction": direction, "by": measure, "layer": str(layer)}
                rows.append(row | {str(n): value for n, value in enumerate(values, 1)})
    note = f"All pairs; {SAID['input']}; a source word for each target word. Columns are heads."
    return Table("heads", "AER of single heads", pd.DataFrame(rows), note)


def _baselines(r: Readings, cells: Finished) -> Table:
    control, rows = Readings(cells, RANDOM), []
    for direction in r.directions:
        row = {"direction": direction, "diagonal": estimate(one_rate(r.baseline(direction, "diagonal")))}
        row["awesome-align (published links)"] = estimate(one_rate(r.baseline(direction, "system")))
        if direction in control.directions:
            for measure in MEASURES:
                random = one_rate(control.held_out(direction, "heads", measure, WAYS))
                row[f"random weights, best head by {measure}"] = estimate(random)
        row["sure links a pair"] = f"{np.divide(*r.cell(direction)[['sure', 'pairs']].sum().to_array()):.1f}"
        rows.append(row)
    return Table("baselines", "AER without a trained model", pd.DataFrame(rows))
