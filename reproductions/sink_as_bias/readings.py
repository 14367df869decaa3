"""Numbers of a model: its sinks as one, by block; and of all models, each once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from reproductions.cancellation_by_layer.measure import MIDDLE
from reproductions.cancellation_by_layer.readings import BLOCKS, KIND_NAMES, MODELS, level
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of, percentile
from reproductions.sink_as_bias.grid import LENGTHS, SINKS, USUAL

__all__ = ["BLOCKS", "KINDS", "MODELS", "Readings", "level"]
KINDS = {**KIND_NAMES, MIDDLE: "middle word"}
Blocks = Float[np.ndarray, " block"]


class Readings:
    """What the cells say; a model counts where it was measured at the usual length."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self.models = [name for name in SINKS if cells.of(model=name, length=USUAL)]
        self.lengths = [n for n in LENGTHS if all(cells.of(model=model, length=n) for model in self.models)]
        """At which every model was measured."""

    def cell(self, model: str, length: int = USUAL) -> xr.Dataset:
        cell: xr.Dataset = self.cells.one(model=model, length=length)
        return cell

    def ratio(self, model: str, how: str, to: str, length: int = USUAL, *, middle: bool = False) -> Blocks:
        """ln of the change with one replacement over that with another, mean over the model's sinks, by block."""
        kinds = [MIDDLE] if middle else list(SINKS[model])
        change = np.log(self.cell(model, length)["change"].sel(kind=kinds)).mean("kind")
        gap = change.sel(replacement=how) - change.sel(replacement=to)
        return np.asarray(gap.transpose("block"))

    def of_sinks(self, model: str, name: str, *, middle: bool = False, **where: Any) -> float:
        """The mean over heads, layers and sinks of a number that each head has."""
        kinds = [MIDDLE] if middle else list(SINKS[model])
        return float(self.cell(model)[name].sel(kind=kinds, **where).mean())

    def rho(self, model: str, norm: str) -> Estimate:
        """Mean ρ within the heads of a model, over texts; the interval from a bootstrap of texts."""
        cell = self.cell(model).sel(kind=list(SINKS[model]), norm=norm)
        value, draws = self.of_sinks(model, "rho", norm=norm), cell["rho_draws"].mean("kind").to_numpy()
        if np.isnan(value):
            return Estimate(value=None, n=cell.attrs["texts"], over="texts")
        return percentile(value, draws[~np.isnan(draws)], n=cell.attrs["texts"], over="texts")

    def loss_gap(self, model: str, to: str) -> Blocks | None:
        """The rise in loss with the mean less a fifth of the rise with another replacement, by block."""
        cell = self.cell(model)
        if "loss_change" not in cell:
            return None
        loss = cell["loss_change"].sel(kind=list(SINKS[model])).mean("kind")
        return np.asarray((loss.sel(replacement="mean") - loss.sel(replacement=to) / 5).transpose("block"))

    def over_models(self, read: Callable[..., Any], *told: Any, **more: Any) -> Estimate:
        """The mean over models of a number that each has (by block)."""
        return mean_of([level(read(model, *told, **more)) for model in self.models], MODELS)
