"""The tables of Nguyen et al. 2022: a row for each λ, and the printed numbers beside ours."""

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from reproductions.frame.finished import Finished
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of
from reproductions.nguyen2022.curves import NAMES, Curves

_MEASURES = {"accuracy": "accuracy", "auroc": "AUROC", "iou": "IoU"}
_SHORT = "ham_part1(50words)"  # the part of YelpHat that the printed numbers are about


def tables(cells: Finished) -> list[Table]:
    curves, printed = Curves(cells), published("nguyen2022")
    every = [_place(curves, place) for place in curves.places]
    return [*every, *_beside_esnli(curves, printed), *_beside_others(curves, printed)]


def _place(curves: Curves, place: tuple[str, str]) -> Table:
    corpus, vectors = place
    columns = {
        "macro F1": "metrics.test.macro_f1",
        "H": "metrics.test.entropy",
        "AUROC": "plausibility.all.pooled.auroc",
        "IoU": "plausibility.all.pooled.iou",
        "AUPRC per instance": "plausibility.all.per_instance.auprc",
        "AUROC per instance": "plausibility.all.per_instance.auroc",
    }
    means = {name: _mean(curves, place, path) for name, path in columns.items()}
    rows = []
    for index, strength in enumerate(curves.levels(place)):
        accuracy = mean_of(curves.tested(place, "accuracy").sel(strength=strength))
        area = mean_of(curves.pooled(place, "auprc").sel(strength=strength))
        rows.append(
            {
                "λ": f"{strength:g}",
                "accuracy": accuracy.value,
                "± sd": accuracy.sd,
                "macro F1": means["macro F1"][index],
                "H": means["H"][index],
                "AUPRC": area.value,
                "AUPRC ± sd": area.sd,
                **{name: means[name][index] for name in list(columns)[2:]},
            }
        )
    return Table(f"{corpus}-{vectors}", f"{NAMES[corpus]}, {vectors}", pd.DataFrame(rows), _note(curves, place))


def _mean(curves: Curves, place: tuple[str, str], path: str) -> list[float]:
    """By λ, over seeds."""
    where = {"corpus": place[0], "vectors": place[1], "strength": curves.levels(place)}
    return curves.of(path).sel(where).mean("seed").values.tolist()


def _note(curves: Curves, place: tuple[str, str]) -> str:
    groups = curves.cells.of(corpus=place[0])[0].result["plausibility"]
    share = groups["all"]["marked"]
    note = f"Scores without information reach a pooled AUPRC of {share:.3f}, the share of marked words."
    for part in (name for name in groups if name != "all"):
        areas = curves.cells.array(
            f"plausibility.{part}.pooled.auprc", "strength", "seed", corpus=place[0], vectors=place[1]
        )
        ends = [float(areas.sel(strength=s).mean()) for s in (curves.strengths[0], curves.largest)]
        words = re.search(r"\((\d+)words\)", part)  # of YelpHat, whose parts are called ham_part1(50words) and so on
        name = f"Reviews of {words[1]} words" if words else part
        note += f" {name}: AUPRC {ends[0]:.3f} at λ = {curves.strengths[0]:g}, {ends[1]:.3f} at {curves.largest:g}."
    return note


def _beside_esnli(curves: Curves, printed: Any) -> Iterator[Table]:
    if "esnli" not in curves.corpora:
        return
    paths = {m: "metrics.test.accuracy" if m == "accuracy" else f"plausibility.all.pooled.{m}" for m in _MEASURES}
    rows = []
    for index, strength in enumerate(printed["esnli"]["lambda"]):
        if strength not in curves.strengths:
            continue
        row: dict[str, Any] = {"λ": f"{strength:g}"}
        for measure, title in _MEASURES.items():
            row[f"{title}, published"] = printed["esnli"][measure][index]
            for corpus, vectors in curves.places:
                if corpus == "esnli":
                    values = curves.cells.array(
                        paths[measure], "seed", corpus=corpus, vectors=vectors, strength=strength
                    )
                    row[f"{title}, {vectors}"] = float(values.mean())
        rows.append(row)
    note = (
        f"Published: {printed['esnli']['source']}. Not the same data (ours: "
        f"{curves.texts('esnli')['train']:,} training pairs, theirs about 550,000; ours: marked entailment "
        "pairs only) nor the same attention: compare the shapes, not the digits. How the paper "
        "binarises for IoU is not known; ours takes rescaled weights of at least ½."
    )
    yield Table("esnli-published", "e-SNLI beside the published numbers", pd.DataFrame(rows), note)


def _beside_others(curves: Curves, printed: Any) -> Iterator[Table]:
    """The few numbers that are printed for the other two corpora, where our λ is the same."""
    corpora = [name for name in ("hatexplain", "yelphat") if name in curves.corpora]
    rows: list[dict[str, Any]] = []
    for corpus in corpora:
        part = _SHORT if corpus == "yelphat" else "all"
        for index, strength in enumerate(printed[corpus]["lambda"]):
            measures = [m for m in ("auprc", "auroc") if m in printed[corpus] and printed[corpus][m][index] is not None]
            for measure in measures if strength in curves.levels((corpus, "glove-100")) else ():
                row = {"corpus": NAMES[corpus], "λ": f"{strength:g}", "measure": measure.upper()}
                row["published"] = printed[corpus][measure][index]
                path = f"plausibility.{part}.pooled.{measure}"
                for vectors in (vectors for name, vectors in curves.places if name == corpus):
                    values = curves.cells.array(path, "seed", corpus=corpus, vectors=vectors, strength=strength)
                    row[vectors] = float(values.mean())
                rows.append(row)
    note = " ".join(f"{NAMES[c]}, published: {printed[c]['source']}." for c in corpora)
    note += " YelpHat, ours: the reviews of 50 words alone." * ("yelphat" in corpora)
    if rows:
        yield Table("others-published", "The others beside the published numbers", pd.DataFrame(rows), note)
