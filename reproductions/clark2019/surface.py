"""What is read off the cells of the surface: weight by kind of token, heads of a kind, entropy."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from reproductions.clark2019.measure import FAR
from reproductions.frame.conditions import TRAINED
from reproductions.frame.finished import Finished

NAMES = {"cls": "[CLS]", "sep": "[SEP]", "period_comma": ". and ,", "other": "other"}


def models(cells: Finished, kind: str = "surface") -> dict[str, dict[str, xr.Dataset]]:
    """Model → condition → its arrays; without the trained model controls say nothing either."""
    found: dict[str, dict[str, xr.Dataset]] = {}
    for cell in cells.of(kind=kind):
        found.setdefault(str(cell.labels["model"]), {})[str(cell.labels["condition"])] = cell.result
    return {model: conditions for model, conditions in found.items() if TRAINED in conditions}


def rows(cells: Finished, kind: str = "surface") -> Iterator[tuple[dict[str, str], xr.Dataset]]:
    for model, conditions in models(cells, kind).items():
        for condition, data in conditions.items():
            yield {"model": model, "condition": condition}, data


def by_layer(data: xr.Dataset, kind: str) -> np.ndarray:
    """The share of the weight on a kind of token, mean over heads."""
    return np.asarray(data["mass"].sel(category=kind).mean("head").values)


def sink(data: xr.Dataset) -> str:
    """The special token that gets more weight over all layers and heads."""
    return max(("cls", "sep"), key=lambda kind: float(data["mass"].sel(category=kind).mean()))


def peak_layer(data: xr.Dataset, kind: str) -> int:
    """The layer that gives a kind of token most weight, from 0."""
    return int(by_layer(data, kind).argmax())


def heads_of(data: xr.Dataset, kind: str) -> list[str]:
    """The heads that give more than half of their weight to a kind of token or neighbour."""
    places = np.argwhere(data["mass"].sel(category=kind).values > FAR)
    return [f"{layer + 1}-{head + 1}" for layer, head in places]


def sure_heads(data: xr.Dataset, kind: str) -> tuple[int, int]:
    """How many heads are of a kind for certain (the whole interval above one half), and how many may be."""
    low, high = (data[f"neighbour_{end}"].sel(neighbour=kind) for end in ("low", "high"))
    return int((low > FAR).sum()), int((high > FAR).sum())
