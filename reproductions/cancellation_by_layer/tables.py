"""ρ at every level by model, kind of token and length; its parts; what zeroing does."""

from typing import Any

import numpy as np
import pandas as pd

from reproductions.cancellation_by_layer.grid import CENTRED, LENGTHS, SINKS, USUAL
from reproductions.cancellation_by_layer.measure import MIDDLE, PUNCTUATION
from reproductions.cancellation_by_layer.pairs import LEVELS, PARTS
from reproductions.cancellation_by_layer.readings import BLOCKS, KIND_NAMES, Readings
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.frame.statistics import mean_of

LEVEL_NAMES = dict(zip(LEVELS, ("pooled", "within layers", "within heads"), strict=True))
PART_NAMES = dict(zip(PARTS, ("between layers", "between heads of a layer", "inside heads"), strict=True))


def tables(cells: Finished) -> list[Table]:
    readings = Readings(cells)
    centred = [_centred(readings)] if readings.centred_models else []
    return [*centred, _levels(readings), _parts(readings), *_lengths(readings), _zeroed(readings), _loss(readings)]


def _kinds(model: str) -> list[str]:
    return [*SINKS[model], PUNCTUATION, "other"]


def _said(values: Any) -> str:
    """A mean over blocks with its interval, as text."""
    one = mean_of(values, BLOCKS)
    return (
        "–"
        if one.value is None
        else f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
        if one.interval
        else f"{one.value:.2f}"
    )


def _levels(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for kind in _kinds(model):
            data = r.cell(model).sel(kind=kind)
            row = {"model": model, "token": KIND_NAMES[kind]}
            row |= {said: _said(data[name].sel(measure="norm")) for name, said in LEVEL_NAMES.items()}
            row |= {
                f"{said}, relative norm": _said(data[name].sel(measure="relative"))
                for name, said in LEVEL_NAMES.items()
            }
            rows.append(row)
    note = (
        f"Texts of {USUAL} tokens. Within layers and heads: the mean of their ρ. Relative norm: ‖f(x)‖ over its mean "
        "over other words of the text in the same head. Mean over blocks of documents and 95 % interval."
    )
    return Table("levels", "Spearman of α with ‖f(x)‖ at every level", pd.DataFrame(rows), note)


def _centred(r: Readings) -> Table:
    rows = []
    for model in r.centred_models:
        for kind in _kinds(model):
            row: dict[str, Any] = {"model": model, "token": KIND_NAMES[kind]}
            for said, length in (("", USUAL), (", centred", CENTRED)):
                data = r.cell(model, length).sel(kind=kind)
                for measure, name in (("norm", "norm"), ("relative", "relative norm")):
                    row[f"{name}{said}"] = _said(data["pooled"].sel(measure=measure))
            if kind != "other":
                one = np.exp(np.log(r.cell(model, CENTRED)[list(_ZEROED)]).sel(target=[kind, MIDDLE]).mean("block"))
                for column, said in _ZEROED.items():
                    row[f"{said}, over that of a middle word"] = float(
                        one[column].sel(target=kind) / one[column].sel(target=MIDDLE)
                    )
            rows.append(row)
    note = (
        f"Texts of {USUAL} tokens. Centred: values less their mean over all tokens of these texts, one for each head. "
        "Change: of the states, if the heads' mean stands in place of the value, in all heads and layers; geometric "
        "mean over blocks."
    )
    return Table("centred", "Pooled ρ as it is and without the constant that is free", pd.DataFrame(rows), note)


_ZEROED = {"sent_weight": "weight", "sent_norm": "share of the norm", "change": "change of states"}


def _parts(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for kind in _kinds(model):
            for measure in ("norm", "relative"):
                data = r.cell(model).sel(kind=kind, measure=measure).mean("block")
                row = {"model": model, "token": KIND_NAMES[kind], "norm": measure, "pooled": float(data["pooled"])}
                rows.append(row | {said: float(data[name]) for name, said in PART_NAMES.items()})
    note = f"Texts of {USUAL} tokens. The three parts sum to the pooled ρ. Means over blocks."
    return Table("parts", "Parts of the pooled ρ", pd.DataFrame(rows), note)


def _lengths(r: Readings) -> list[Table]:
    out = []
    for name, said in LEVEL_NAMES.items():
        rows = []
        for model in r.models:
            for kind in _kinds(model):
                found = {n: r.cell(model, n) for n in LENGTHS if r.cells.of(model=model, length=n)}
                values = {str(n): float(d[name].sel(kind=kind, measure="norm").mean()) for n, d in found.items()}
                rows.append({"model": model, "token": KIND_NAMES[kind], **values})
        out.append(Table(f"length-{name.replace('_', '-')}", f"ρ {said} by tokens of a text", pd.DataFrame(rows)))
    return out


def _zeroed(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for length in (n for n in LENGTHS if r.cells.of(model=model, length=n)):
            cell = r.cell(model, length)
            for target in (*SINKS[model], PUNCTUATION, MIDDLE):
                one = cell.sel(target=target).mean("block")
                name = "middle word" if target == MIDDLE else KIND_NAMES[target]
                row = {"model": model, "tokens": length, "zeroed": name}
                row |= {said: float(one[key]) for key, said in _ZEROED.items()}
                row["change of the loss"] = float(one["loss_change"]) if "loss_change" in one else None
                rows.append(row)
    note = (
        "The value of one token set to zero in all heads and layers. Weight and share of the norm: means over layers, "
        "heads and the words behind the middle. Change: ‖h′ − h‖/‖h‖ of the final states of these words."
    )
    return Table("zeroed", "Without the value of a token", pd.DataFrame(rows), note)


def _loss(r: Readings) -> Table:
    rows: list[dict[str, Any]] = []
    for model in r.models:
        for cell in r.cells.of(model=model, part="loss"):
            loss = {name: np.array(values) for name, values in cell.result["loss"].items()}
            sentences = str(cell.result["sentences"])
            rows.append({"model": model, "sentences": sentences, "loss": float(loss["intact"].mean()),
                         "without </s>": _change(loss["sep"] - loss["intact"]),
                         "without a middle word": _change(loss[MIDDLE] - loss["intact"])})  # fmt: skip
        if "loss" in r.cell(model):
            cell = r.cell(model)
            change = {target: _change(cell["loss_change"].sel(target=target)) for target in (SINKS[model][0], MIDDLE)}
            rows.append({"model": model, "sentences": None, "loss": float(cell["loss"].mean()),
                         "without the first token": change[SINKS[model][0]],
                         "without a middle word": change[MIDDLE]})  # fmt: skip
    columns = ["model", "sentences", "loss", "without </s>", "without the first token", "without a middle word"]
    note = (
        "Change of the loss when the value of one token is zeroed. Translation: reference translations of Multi30k, "
        f"values of the encoder. SmolLM2: next tokens behind the middle, texts of {USUAL} tokens."
    )
    return Table("loss", "The loss without the value of a token", pd.DataFrame(rows, columns=columns), note)


def _change(values: Any) -> str:
    one = mean_of(values, BLOCKS)
    return f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]" if one.interval else f"{one.value:+.4f}"
