"""The tables of many classes and of parts of speech."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from reproductions.fosse2023.classes.bounds import least_largest_absolute_cosine
from reproductions.fosse2023.classes.claims import TITLES, Directions, labelled, planted
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table

Row = dict[str, Any]


def tables(cells: Finished) -> Iterator[Table]:
    if rows := [_planted(runs) for runs in planted(cells).values()]:
        note = "*bound*: the largest cosine cannot be less. *directions*: effective rank of the centred class means."
        title = "Planted classes: how directions lie, by width and number of classes"
        yield Table("planted", title, pd.DataFrame(rows), note)
    if rows := [_labelled(name, vectors, runs) for (name, vectors), runs in labelled(cells).items()]:
        yield Table("labels", "Real label sets", pd.DataFrame(rows), _LABELS)


_LABELS = (
    "*majority*: the accuracy of always saying the most frequent class. Spearman: over classes, of the mean cosine "
    "with the own class's mean direction and accuracy. AUROC: own class against others, mean of classes."
)


def _mean(runs: Directions, path: str) -> float:
    return float(runs.array(path).mean())


def _lie(runs: Directions) -> Row:
    right = runs.value("accuracy")
    return {
        "accuracy": right.value,
        "± sd": right.sd or 0.0,
        "mean cosine": _mean(runs, "raw.mean"),
        "largest cosine": _mean(runs, "raw.largest"),
        "largest, centred": _mean(runs, "centred.largest"),
        "bound": runs.bound,
        "largest |cos|, centred": _mean(runs, "centred.largest_absolute"),
        "Welch": least_largest_absolute_cosine(runs.classes, runs.room),
        "directions": _mean(runs, "centred.effective_rank"),
        "of at most": runs.most,
        "own cosine": _mean(runs, "own_cosine"),
    }


def _planted(runs: Directions) -> Row:
    return {"width": runs.width, "classes": runs.classes, **_lie(runs)}


def _labelled(name: str, vectors: str, runs: Directions) -> Row:
    first = runs.runs.cells[0]
    row: Row = {"labels": TITLES[name], "vectors": vectors, "classes": first.value("classes"), "used": runs.classes}
    row |= {**_lie(runs), "AUROC": _mean(runs, "auroc"), "Spearman": _mean(runs, "spearman")}
    return row | {"majority": first.value("majority")}
