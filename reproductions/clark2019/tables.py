"""Tables of where the weight goes, a row for each model and condition, the published numbers beside them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from reproductions.clark2019.cell import MASSES
from reproductions.frame.conditions import PUBLISHED_MODEL
from reproductions.frame.readings import Found, array, interval
from reproductions.frame.record import Table

NAMES = {"cls": "[CLS]", "sep": "[SEP]", "period_comma": ". and ,", "other": "other"}
FAR = 0.5
"""A head is one of a kind if more than half of its weight goes there."""
HEAD_KINDS = ("previous", "next", "self", "cls", "sep", "period_comma")
_PRINTED = {"model": PUBLISHED_MODEL, "condition": "published"}


def tables(found: Found, numbers: Mapping[str, Any]) -> list[Table]:
    value = {name: entry["value"] for name, entry in numbers.items()}
    return [
        _segments(found, value),
        _masses(found),
        _heads(found, value),
        _special_rows(found, value),
        _entropy(found),
        _apart(found),
    ]


def rows_of(found: Found) -> list[tuple[dict[str, str], Any]]:
    return [
        ({"model": model, "condition": condition}, cell)
        for model, cells in found.items()
        for condition, cell in cells.items()
    ]


def mass(cell: Mapping[str, Any], kind: str) -> np.ndarray:
    """[block layer head]"""
    return np.asarray(array(cell["by_block"]["mass"])[..., MASSES.index(kind)])


def heads_of(cell: Mapping[str, Any], kind: str) -> list[str]:
    """The heads that give more than half of their weight to a kind of token or neighbour."""
    return [f"{layer + 1}-{head + 1}" for layer, head in np.argwhere(mass(cell, kind).mean(0) > FAR)]


def sure_heads(cell: Mapping[str, Any], kind: str) -> tuple[int, int]:
    """How many heads are of a kind for certain (the whole interval above one half), and how many may be."""
    blocks = mass(cell, kind).reshape(len(cell["by_block"]["mass"]), -1)
    ends = np.array([interval(column)[1:] for column in blocks.T])
    return int((ends[:, 0] > FAR).sum()), int((ends[:, 1] > FAR).sum())


def _segments(found: Found, value: Mapping[str, Any]) -> Table:
    names = ("corpus", "segments", "tokens", "squared_tokens")
    rows = [{**_PRINTED, "corpus": "Wikipedia", **value["segments"]}]
    rows += [{**where, **{name: cell[name] for name in names}} for where, cell in rows_of(found)]
    return Table("Segments", pd.DataFrame(rows).rename(columns={"tokens": "Σ n", "squared_tokens": "Σ n²"}))


def _masses(found: Found) -> Table:
    rows = []
    for where, cell in rows_of(found):
        for kind, name in NAMES.items():
            layers = mass(cell, kind).mean((0, 2))
            rows.append({**where, "token": name, **{str(n): float(share) for n, share in enumerate(layers, 1)}})
    note = (
        "Published (read off a figure): [SEP] more than half in layers 6 to 10 of 12, [CLS] about .25 at layer 2, "
        "period and comma .5 to .57 at layers 11 and 12."
    )
    return Table("Share of the weight by kind of token and layer (mean over heads)", pd.DataFrame(rows), note)


def _heads(found: Found, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = [
        {
            **_PRINTED,
            "heads": value["heads"],
            "previous": str(value["previous_heads"]),
            "next": str(value["next_heads"]),
        }
    ]
    for where, cell in rows_of(found):
        shape = array(cell["by_block"]["entropy"]).shape
        rows.append({**where, "heads": shape[1] * shape[2], **{kind: _listed(cell, kind) for kind in HEAD_KINDS}})
    return Table(
        "Heads (layer-head) that give more than half of their weight to one kind of token",
        pd.DataFrame(rows).rename(columns=NAMES).fillna("–"),
    )


def _listed(cell: Mapping[str, Any], kind: str) -> str:
    heads = heads_of(cell, kind)
    shown = ", ".join(heads[:8]) + (" …" if len(heads) > 8 else "")
    return f"{len(heads)}: {shown}" if heads else "0"


def _special_rows(found: Found, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = [
        {**_PRINTED, "entropy of [CLS], last layer": f"{value['cls_entropy_last_layer']:.2f}", "[SEP] → [SEP]": "> .9"}
    ]
    for where, cell in rows_of(found):
        last = array(cell["by_block"]["cls_entropy"])[:, -1].mean(-1)
        row = {**where, "entropy of [CLS], last layer": _said(last)}
        wanted = mass(cell, "sep").mean(0) > FAR
        if wanted.any():
            row["[SEP] → [SEP]"] = _said(array(cell["by_block"]["sep_to_sep"])[:, wanted].mean(-1))
        rows.append(row)
    return Table(
        "What special tokens attend to",
        pd.DataFrame(rows).fillna("no such head"),
        "Entropy in nats of the row of [CLS]; weight of [SEP] on [SEP] in the heads that give [SEP] more than half. "
        f"Uniform attention has about {value['uniform_entropy']} nats.",
    )


def _entropy(found: Found) -> Table:
    rows = []
    for where, cell in rows_of(found):
        layers = array(cell["by_block"]["entropy"]).mean((0, 2))
        rows.append({**where, **{str(layer): float(nats) for layer, nats in enumerate(layers, 1)}})
    return Table(
        "Entropy in nats by layer (mean over queries, segments and heads)",
        pd.DataFrame(rows),
        "Without the paper's smoothing (.9999 α + .0001/n), which changes it by about a thousandth.",
    )


def _apart(found: Found) -> Table:
    rows = []
    for where, cell in rows_of(found):
        if (apart := cell["distances"]) is not None:
            same, different = _said(apart["within"]), _said(apart["between"])
            less = _said(array(apart["within"]) - array(apart["between"]))
            rows.append({**where, "same layer": same, "other layer": different, "difference": less,
                         "segments": apart["segments"], "stress of the map": apart["stress"]})  # fmt: skip
    return Table("Jensen–Shannon divergence in nats between two heads, mean over queries", pd.DataFrame(rows))


def _said(blocks: Any) -> str:
    mean, low, high = interval(list(blocks))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
