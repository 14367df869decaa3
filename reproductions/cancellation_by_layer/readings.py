"""Numbers of a model: its sinks as one, by block; and of all models, each once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from reproductions.cancellation_by_layer.grid import CENTRED, LENGTHS, SINKS, USUAL
from reproductions.cancellation_by_layer.measure import MIDDLE, PUNCTUATION
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of

MODELS = "models"
BLOCKS = "blocks of documents"
KIND_NAMES = {"cls": "[CLS]", "sep": "[SEP] or </s>", "first": "first token", PUNCTUATION: ". and ,", "other": "other"}
Blocks = Float[np.ndarray, " block"]


def level(values: Any) -> float:
    """The mean over the blocks that have a number; NaN where none has."""
    mean = mean_of(values).value
    return float("nan") if mean is None else float(mean)


class Readings:
    """What the cells say; a model counts where it was measured at the usual length."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self.models = [name for name in SINKS if cells.of(model=name, length=USUAL)]
        self.lengths = [n for n in LENGTHS if all(cells.of(model=model, length=n) for model in self.models)]
        """At which every model was measured."""
        self.centred_models = [model for model in self.models if cells.of(model=model, part=CENTRED)]

    def cell(self, model: str, length: int | str = USUAL) -> xr.Dataset:
        """Of texts of so many tokens; with `CENTRED`, of the usual length and less the constant of each head."""
        where = {"part": CENTRED} if length == CENTRED else {"length": length}
        cell: xr.Dataset = self.cells.one(model=model, **where)
        return cell

    def sink(self, model: str, name: str, length: int | str = USUAL, measure: str = "norm") -> Blocks:
        """A number of the model's sinks, mean over them, by block."""
        return self._of(model, name, length, measure, list(SINKS[model]))

    def punctuation(self, model: str, name: str, length: int | str = USUAL, measure: str = "norm") -> Blocks:
        return self._of(model, name, length, measure, [PUNCTUATION])

    def _of(self, model: str, name: str, length: int | str, measure: str, kinds: list[str]) -> Blocks:
        found = self.cell(model, length)[name].sel(kind=kinds, measure=measure)
        return np.asarray(found.mean("kind").transpose("block"))

    def paradox(self, model: str, length: int = USUAL) -> Blocks:
        """ρ within heads less the pooled ρ, by block."""
        return self.sink(model, "within_heads", length) - self.sink(model, "pooled", length)

    def ratio(self, model: str, name: str, length: int | str = USUAL) -> Blocks:
        """log of a sink's number over that of the middle word, mean over the model's sinks, by block."""
        cell = np.log(self.cell(model, length)[name])
        gap = cell.sel(target=list(SINKS[model])).mean("target") - cell.sel(target=MIDDLE)
        return np.asarray(gap.transpose("block"))

    def loss_gap(self, model: str) -> Blocks | None:
        """The loss without the sink's value less that without the middle word's, by block."""
        if cells := self.cells.of(model=model, part="loss"):
            loss = cells[0].result["loss"]
            return np.array(loss["sep"]) - np.array(loss[MIDDLE])
        cell = self.cell(model)
        if "loss_change" not in cell:
            return None
        gap = cell["loss_change"].sel(target=SINKS[model][0]) - cell["loss_change"].sel(target=MIDDLE)
        return np.asarray(gap.transpose("block"))

    def over_models(self, read: Callable[..., Any], *told: Any) -> Estimate:
        """The mean over models of a number that each has by block."""
        return mean_of([level(read(model, *told)) for model in self.models], MODELS)
