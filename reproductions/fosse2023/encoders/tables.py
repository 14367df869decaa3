"""The tables of the fine-tuned encoders."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from reproductions.fosse2023.cones import QUANTILES
from reproductions.fosse2023.encoders.claims import Encoder, every
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.finished import Finished
from reproductions.frame.markdown import number
from reproductions.frame.page import Table
from reproductions.frame.statistics import mean_of

MIDDLE = QUANTILES.index(0.5)
Row = dict[str, Any]
_PAIR = ("direction", "class")


def tables(cells: Finished, printed: Mapping[str, Any]) -> Iterator[Table]:
    encoders = every(cells)
    if not encoders:
        return
    yield Table("encoders", "Fine-tuned encoders", pd.DataFrame([_run(one) for one in encoders]), _RUNS)
    for corpus in dict.fromkeys(encoder.corpus for encoder in encoders):
        some = [encoder for encoder in encoders if encoder.corpus == corpus]
        yield _medians(some, printed)
        rows = [row for encoder in some for row in _matrix(encoder)]
        title = f"{NAMES[corpus]}: class × class cosines after training"
        yield Table(f"matrix-{corpus}", title, pd.DataFrame(rows), _MATRIX)
    rows = [row for encoder in encoders for row in _own(encoder, printed["esnli_own"])]
    note = f"Published: {printed['esnli_own']['source']}, in the order entailment, neutral, contradiction."
    title = "Mean cosine with the own class's representatives, classified right and wrong"
    yield Table("own", title, pd.DataFrame(rows), note)
    yield _sim(encoders, printed["esnli_sim"])


def _place(encoder: Encoder) -> Row:
    return {"corpus": NAMES[encoder.corpus], "model": encoder.model, "weights from": encoder.start}


_RUNS = "AUROC: the chance that a text is closer to a representative of its class than one of another; mean of classes."


def _run(encoder: Encoder) -> Row:
    right = mean_of(encoder.array("metrics.test.accuracy"))
    by_class = encoder.mean("after.cones.random.accuracy", "class").values
    named = (f"{name} {number(float(value), 2)}" for name, value in zip(encoder.labels, by_class, strict=True))
    row: Row = {**_place(encoder), "seeds": len(encoder.runs), "accuracy": right.value, "± sd": right.sd or 0.0}
    row |= {"by class": ", ".join(named), "best epoch": float(encoder.mean("best.epoch"))}
    areas = {when: encoder.array(f"{when}.cones.random.auroc", "class").mean("class") for when in ("before", "after")}
    return row | {f"AUROC {when}": float(area.mean()) for when, area in areas.items()}


def _medians(encoders: Sequence[Encoder], printed: Mapping[str, Any]) -> Table:
    corpus, labels = encoders[0].corpus, encoders[0].labels
    rows: list[Row] = [{"representative": first, "true class": second} for first in labels for second in labels]
    note = "Ours: representatives at random, excluded; *first kept*: the authors' way. Means over seeds of the medians."
    if corpus == "esnli":
        given = printed["esnli_medians"]
        note += f" Published: {given['source']}."
        for row in rows:
            i, j = (given["classes"].index(row[side]) for side in ("representative", "true class"))
            row |= {f"published, {name}": given[name][i][j] for name in ("notebook", "slide")}
    elif corpus == "yelphat":
        note += f" Published ({printed['yelphat']['source']}): same class ≈ .90, other ≈ .195."
    for encoder in encoders:
        name = encoder.model if encoder.start == "pretrained" else f"{encoder.model}, random weights"
        ways = {name: "random"} | ({f"{name}, first kept": "first"} if name == "minilm" else {})
        for title, way in ways.items():
            medians = encoder.array(f"after.cones.{way}.quantile", (*_PAIR, "limit"))[..., MIDDLE].values
            for place, row in enumerate(rows):
                value = mean_of(medians[:, place // len(labels), place % len(labels)])
                row[title] = value.value
                if way == "random":
                    row[f"{title} ± sd"] = None if value.value is None else value.sd or 0.0
    title = f"{NAMES[corpus]}: median cosine of the texts with representatives"
    return Table(f"medians-{corpus}", title, pd.DataFrame(rows), note)


_MATRICES = {"representatives": "representatives", "means": "class_cosine", "centred": "class_cosine_centred"}
_MATRIX = (
    "*representatives*: mean cosine between representatives of two classes (of one class: between different ones); "
    "*means*: cosine between class means; *centred*: the same, less the mean over classes (of two classes −1)."
)


def _matrix(encoder: Encoder) -> Iterator[Row]:
    matrices = {title: encoder.mean(f"after.cones.random.{key}", _PAIR).values for title, key in _MATRICES.items()}
    for i, label in enumerate(encoder.labels):
        row: Row = {"model": encoder.model, "weights from": encoder.start, "class": label}
        for title, matrix in matrices.items():
            row |= {f"{title}: {other}": float(matrix[i, j]) for j, other in enumerate(encoder.labels)}
        yield row


def _own(encoder: Encoder, printed: Mapping[str, Any]) -> Iterator[Row]:
    names = ("own_right", "own_wrong", "auroc", "auroc_mean")
    values = {name: encoder.mean(f"after.cones.random.{name}", "class").values for name in names}
    for c, label in enumerate(encoder.labels):
        row: Row = {**_place(encoder), "class": label}
        for title in ("right", "wrong"):
            row[title] = float(values[f"own_{title}"][c])
            if (encoder.corpus, encoder.start) == ("esnli", "pretrained"):
                row[f"{title}, published (BERT)"] = printed[title][c]
        yield row | {"AUROC": float(values["auroc"][c]), "AUROC, class mean": float(values["auroc_mean"][c])}


def _sim(encoders: Sequence[Encoder], printed: Mapping[str, Any]) -> Table:
    rows: list[Row] = []
    for encoder in encoders:
        for when in ("before", "after"):
            values = encoder.mean(f"{when}.sim.tokens", "layer").values.tolist()
            rows.append({**_place(encoder), "when": when, **{str(n): value for n, value in enumerate(values)}})
    if any(encoder.corpus == "esnli" for encoder in encoders):
        where = {"corpus": NAMES["esnli"], "model": "BERT, published", "weights from": "pretrained", "when": "after"}
        rows.append({**where, **{str(n): value for n, value in enumerate(printed["after"])}})
    left_out = sum(int(encoder.array("after.sim.tokens_left_out").sum()) for encoder in encoders)
    note = f"Layer 0: the embeddings. Texts of one token, which have no pair: {left_out}, left out. "
    title = "SIM of hidden states within texts, by layer, before and after training"
    return Table("sim-encoders", title, pd.DataFrame(rows), f"{note}Published: {printed['source']}.")
