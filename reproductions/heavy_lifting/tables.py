"""Every arm at every number of heads; the models that were cut; heads with roles."""

from statistics import mean
from typing import Any

import pandas as pd

from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.frame.statistics import mean_of
from reproductions.heavy_lifting.readings import ARMS, ROLES, Readings


def tables(cells: Finished) -> list[Table]:
    readings = Readings(cells)
    return [_arms(readings, "bleu"), _arms(readings, "loss"), _cut(readings), _whole(readings), _kept(readings)]


def _arms(readings: Readings, metric: str) -> Table:
    rows: list[dict[str, Any]] = [
        {"heads": "all", "seeds": len(readings.whole()), ARMS["own"]: _mean(readings.whole(metric))}
    ]
    for left in readings.left:
        arms = {ARMS[name]: _mean(readings.arm(name, left, metric)) for name in ARMS}
        spread = [max(one) - min(one) for one in readings.draws(left, metric).values()]
        rows.append({"heads": str(left), "seeds": len(readings.arm("own", left)), **arms,
                     "range of random sets": mean(spread) if spread else None})  # fmt: skip
    title = "BLEU by heads left" if metric == "bleu" else "Loss by heads left"
    note = (
        "Means over seeds, test sentences, every model trained for the same number of steps. The first row is the "
        "whole model. Range: the best random set less the worst, mean over seeds."
    )
    return Table(metric, title, pd.DataFrame(rows), note)


def _cut(readings: Readings) -> Table:
    names = {name: ARMS[name] for name in ("gates", "confidence", "gradient", "random")}
    names["free"] = "random heads of all layers"
    rows = [
        {"heads": left, "seeds": len(readings.cut("gates", left))}
        | {title: _mean(readings.cut(name, left)) for name, title in names.items()}
        for left in readings.left
    ]
    whole = [c.result["before"] for c in readings.cells.of(kind="after", left=readings.left[0])] if rows else []
    note = (
        "Loss on 300 test sentences before any step without the heads; means over seeds, of random heads over sets. "
        f"With all heads: {mean(whole):.3f}."
        if whole
        else "Not measured yet."
    )
    return Table("cut", "Loss right after the cut", pd.DataFrame(rows), note)


def _whole(readings: Readings) -> Table:
    rows = []
    for cell in readings.cells.of(kind="whole"):
        result = cell.result
        roles = {name: int(sum(map(sum, result["roles"][name]))) for name in ROLES}
        rows.append({"seed": cell.labels["seed"], "loss after T": result["losses"]["trained"],
                     "after T + G": result["losses"]["longer"], "after T + G + F": result["whole"]["loss"],
                     "BLEU": result["whole"]["bleu"], **roles})  # fmt: skip
    note = "Loss on the test sentences. The last columns count encoder heads, of 24, with a role above its control."
    return Table("whole", "The whole models", pd.DataFrame(rows), note)


def _kept(readings: Readings) -> Table:
    rows = []
    for left in readings.left:
        results = [c.result for c in readings.cells.of(kind="gates", left=left)]
        row: dict[str, Any] = {"heads": left}
        for stack in ("encoder", "decoder", "cross"):
            layers = [
                mean(len(one["kept"][stack][layer]) for one in results)
                for layer in range(len(results[0]["kept"][stack]))
            ]
            row[stack] = " / ".join(f"{count:.1f}" for count in layers)
        row["open gates"] = mean(one["open"] for one in results)
        rows.append(row)
    note = "Heads that gates leave in each layer, of 8, mean over seeds. Open gates: before exactly so many were kept."
    return Table("kept", "Where the heads are that gates leave", pd.DataFrame(rows), note)


def _mean(values: dict[int, float]) -> float | None:
    value = mean_of(list(values.values())).value
    return None if value is None else float(value)
