"""Changes of the states and of the loss; constancy; ρ over texts."""

from typing import Any

import numpy as np
import pandas as pd

from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.sink_as_bias.grid import LENGTHS, SINKS, USUAL
from reproductions.sink_as_bias.measure import MIDDLE, NORMS, REPLACEMENTS
from reproductions.sink_as_bias.readings import KINDS, Readings

NAMES = {
    "zero": "zero",
    "average": "head's mean over all tokens",
    "mean": "mean over other texts",
    "swap": "value in another text",
}


def tables(cells: Finished) -> list[Table]:
    r = Readings(cells)
    return [_changes(r), *_losses(r), _texts(r)]


def _changes(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for length in (n for n in LENGTHS if r.cells.of(model=model, length=n)):
            for kind in (*SINKS[model], MIDDLE):
                change = r.cell(model, length)["change"].sel(kind=kind).mean("block")
                row: dict[str, Any] = {"model": model, "tokens": length, "replaced": KINDS[kind]}
                row |= {NAMES[how]: float(change.sel(replacement=how)) for how in REPLACEMENTS}
                rows.append(
                    row | {"mean / zero": float(change.sel(replacement="mean") / change.sel(replacement="zero"))}
                )
    note = "‖h′ − h‖/‖h‖ of the final states of the words behind the middle, mean over blocks; all heads and layers."
    return Table("changes", "How far the states move", pd.DataFrame(rows), note)


def _losses(r: Readings) -> list[Table]:
    rows = []
    for model in r.models:
        for length in (n for n in LENGTHS if r.cells.of(model=model, length=n)):
            cell = r.cell(model, length)
            for kind in (*SINKS[model], MIDDLE) if "loss_change" in cell else ():
                loss = cell["loss_change"].sel(kind=kind).mean("block")
                row: dict[str, Any] = {"model": model, "tokens": length, "replaced": KINDS[kind]}
                rows.append(row | {NAMES[how]: float(loss.sel(replacement=how)) for how in REPLACEMENTS})
    note = "Rise in the loss of the next token, behind the middle."
    return [Table("losses", "Rise in the loss", pd.DataFrame(rows), note)] if rows else []


def _texts(r: Readings) -> Table:
    rows = []
    for model in r.models:
        for kind in (*SINKS[model], MIDDLE):
            cell = r.cell(model).sel(kind=kind)
            row: dict[str, Any] = {"model": model, "token": KINDS[kind], "weight": float(cell["weight"].mean())}
            row["same in every text"] = float(cell["constancy"].mean())
            for norm in NORMS:
                said = "" if norm == "norm" else ", centred"
                row[f"mean ρ{said}"] = float(cell["rho"].sel(norm=norm).mean())
                row[f"mean |ρ|{said}"] = float(np.abs(cell["rho"].sel(norm=norm)).mean())
                row[f"by chance{said}"] = float(cell["size_by_chance"].sel(norm=norm))
            rows.append(row)
    note = (
        f"Texts of {USUAL} tokens. Same in every text: ‖mean‖² / mean ‖·‖² of f(x) of centred values, over heads. ρ "
        "within each head, over texts, of the mean weight that words behind the middle give to the token and "
        "‖f(x)‖. By chance: mean |ρ| if texts are shuffled."
    )
    return Table("texts", "The token over texts", pd.DataFrame(rows), note)
