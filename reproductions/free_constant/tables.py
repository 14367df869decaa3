"""SIM by layer of every encoder and arm, raw and centred; what the classifiers have learnt."""

from typing import Any

import numpy as np
import pandas as pd

from lorgnette.looking.controls import RANDOM, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.free_constant.grid import ARMS
from reproductions.free_constant.measure import KINDS, VECTORS
from reproductions.free_constant.readings import Readings, Trainings

SAID = {"plain": "no penalty", "sharp": "entropy penalty", "fast": "three times the step size"}


def tables(cells: Finished) -> list[Table]:
    r, t = Readings(cells), Trainings(cells)
    return [*([_means(r), _layers(r)] if r.models else ()), *([_trained(t)] if any(map(t.seeds, ARMS)) else ())]


def _means(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for vector in VECTORS:
            row: dict[str, Any] = {"model": model, "vectors": f"{vector}s"}
            row |= {kind: float(r.sim(model, vector, kind).mean()) for kind in KINDS}
            row["constant"] = float(r.share(model, vector).mean())
            row["ρ over layers"] = r.order(model, vector)
            if r.cells.of(model=model, condition=RANDOM):
                row |= {f"{k}, random weights": float(r.sim(model, vector, k, RANDOM).mean()) for k in KINDS}
            rows.append(row)
    note = (
        "Mean over layers, heads and texts. Constant: ‖c‖² over the mean of ‖x‖², c the mean over all tokens. ρ: "
        "Spearman over layers of SIM raw and centred."
    )
    return Table("means", "SIM of keys and values of encoders", pd.DataFrame(rows), note)


def _layers(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for condition in (TRAINED, RANDOM):
            for vector in VECTORS if r.cells.of(model=model, condition=condition) else ():
                for kind in KINDS:
                    row: dict[str, Any] = {"model": model, "weights": condition, "vectors": f"{vector}s", "SIM": kind}
                    layers = enumerate(r.sim(model, vector, kind, condition).tolist(), 1)
                    rows.append(row | {str(layer): value for layer, value in layers})
    return Table("layers", "By layer", pd.DataFrame(rows))


def _trained(t: Trainings) -> Table:
    rows = []
    for arm in (arm for arm in ARMS if t.seeds(arm)):
        for vector in VECTORS:
            for kind in KINDS:
                name = vector if kind == "raw" else f"{vector}_{kind}"
                row: dict[str, Any] = {"training": SAID[arm], "runs": len(t.seeds(arm)), "at chance": t.at_chance(arm)}
                row |= {f"{part} accuracy": float(np.mean(t.accuracy(arm, part))) for part in ("train", "test")}
                row |= {"H, first layer": float(t.mean(arm, "entropy")[0]), "vectors": f"{vector}s", "SIM": kind}
                rows.append(row | {str(n): value for n, value in enumerate(t.mean(arm, name).tolist(), 1)})
    note = "Means over seeds, by layer. H: entropy of the attention of `<cls>` over its largest, 1 if it is uniform."
    return Table("trained", "Classifiers of five layers", pd.DataFrame(rows), note)
