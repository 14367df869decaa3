"""What the set-up says of the data, from the cells."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from reproductions.fosse2023 import STUDY
from reproductions.fosse2023.classes.claims import ENOUGH, planted
from reproductions.fosse2023.grid import CORPORA, NAMES
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    """Counts of texts and sentences, by part; `whole` if all claims of the headline are there."""
    return {
        "attention": _texts(cells, "attention"),
        "encoders": _texts(cells, "encoders"),
        "many_classes": bool(cells.of(part="classes")),
        "tagging": _tagging(cells),
        "unlearnt": _unlearnt(cells, 768, 4096),
        "whole": set(STUDY.headline) <= set(claims),
    }


def _texts(cells: Finished, part: str) -> list[dict[str, Any]]:
    found = []
    for corpus in CORPORA:
        for cell in cells.of(part=part, corpus=corpus)[:1]:
            about = {"name": NAMES[corpus], "train": cell.value("texts.train"), "test": cell.value("texts.test")}
            marked = cell.value("plausibility.attention.all.texts") if part == "attention" else None
            found.append(about | {"marked": marked, "cut": cell.result.get("cut", 0)})
    return found


def _tagging(cells: Finished) -> dict[str, Any]:
    for cell in cells.of(part="tagging")[:1]:
        counts, left_out = cell.value("sentences"), sum(cell.value("left_out").values())
        tags = len(cell.value("tags"))
        return {"tags": tags, "train": counts["train"], "test": counts["test"], "left_out": left_out}
    return {}


def _unlearnt(cells: Finished, width: int, classes: int) -> dict[str, Any]:
    """The runs on planted classes that did not learn them all: how many, accuracy, mean cosine of two classes."""
    runs = planted(cells).get((width, classes))
    if runs is None:
        return {}
    every = zip(runs.array("accuracy").values.tolist(), runs.array("raw.mean").values.tolist(), strict=True)
    low = [pair for pair in every if pair[0] < ENOUGH]
    accuracy, cosine = map(mean, zip(*low, strict=True)) if low else (None, None)
    return {"low": len(low), "runs": runs.array("accuracy").size, "accuracy": accuracy, "cosine": cosine}
