"""From a sample of labelled vectors to the numbers of the cones lens."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.lens.cones.formulas import (
    Separation,
    class_cosines,
    mean_direction_cosines,
    representative_cosines,
    separation,
)
from lorgnette.lens.pairs import extreme_q
from lorgnette.statistics.estimate import Estimate
from lorgnette.statistics.spearman import spearman

if TYPE_CHECKING:
    from lorgnette.lens.cones.lens import Cones

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NEIGHBOURS = ("own_nearest", "other_nearest", "own_farthest")
NEAREST = 5
_DESCRIPTIONS = {
    "cosine": "mean cosine of the texts of one class with the representatives of another (or the same) class",
    "cosine_quantile": "quantiles of those cosines, over texts and draws",
    "mean_cosine": "mean cosine of the texts of a class with the mean direction of a class",
    "class_cosine": "cosine between two classes' mean directions",
    "class_cosine_centred": "the same after subtracting the mean over classes",
    "auroc": "AUROC: probability that a text of the class is closer to its representative than a text of another class",
    "auroc_bottom_q": "q of the difference from the lowest AUROC: paired over texts, corrected over all pairs",
    "auroc_mean": "the same with the class's mean direction",
    "own_right": "mean cosine of correctly classified texts with the representatives of their own class",
    "own_wrong": "mean cosine of misclassified texts with the representatives of their own class",
    "accuracy": "accuracy on the texts of a class, over all texts",
    "draws_count": "number of representatives drawn from the correctly classified texts of the class",
    "pearson": "Pearson correlation, over classes, of accuracy with the mean cosine to the own class",
    "spearman": "Spearman correlation, over classes, of accuracy with the mean cosine to the own class",
    "neighbour_cosine": "cosine with the first representative of the class",
    "neighbour_id": "text",
    "neighbour_label": "its class",
    "representative_id": "first representative of the class",
}


@dataclass(frozen=True)
class Sample:
    """Texts with a direction: their ids, unit vectors, labels and predicted labels, in random order."""

    ids: list[str]
    units: Float[Tensor, "text dim"]
    labels: Int[Tensor, " text"]
    predicted: Int[Tensor, " text"]

    @staticmethod
    def of(
        ids: list[str], labels: Int[Tensor, " all"], predicted: Int[Tensor, " all"], vectors: Float[Tensor, "all dim"]
    ) -> "Sample":
        """Vectors of length zero are left out."""
        vectors = vectors.double()
        length = vectors.norm(dim=-1, keepdim=True)
        nonzero = length[:, 0] > 0
        units = vectors[nonzero] / length[nonzero]
        names = [name for name, yes in zip(ids, nonzero.tolist(), strict=True) if yes]
        return Sample(names, units, labels[nonzero], predicted[nonzero])

    def representatives(self, label: int, how: str, draws: int) -> Int[Tensor, " draw"]:
        """Texts of a class that are classified right: the first in random order, or the first by id."""
        right = ((self.labels == label) & (self.predicted == label)).nonzero()[:, 0]
        if how == "first" and len(right):
            return right[[min(range(len(right)), key=lambda k: _natural(self.ids[int(right[k])]))]]
        return right[:draws]


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts "text 9" before "text 10"."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


class _ConeTable:
    """Named arrays that are filled in step by step; floats start as NaN, counts as 0, texts as ""."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.coordinates: dict[str, list[object]] = {
            axes.DIRECTION: list(classes),
            axes.DIRECTION_B: list(classes),
            axes.LABEL: list(classes),
            axes.QUANTILE: list(QUANTILES),
            axes.NEIGHBOUR: list(NEIGHBOURS),
            axes.RANK: list(range(1, NEAREST + 1)),
        }
        self.arrays: dict[str, xr.DataArray] = {}

    def __getitem__(self, key: tuple[str, ...]) -> np.ndarray:
        """The values of (name, *axes), made when first asked for."""
        name, *dims = key
        if name not in self.arrays:
            shape = [len(self.coordinates[dim]) for dim in dims]
            empty = np.full(shape, np.nan)
            if name.endswith("_count"):
                empty = np.zeros(shape, dtype="int64")
            elif name.endswith(("_id", "_label")):
                empty = np.full(shape, None, dtype=object)
            where = {dim: self.coordinates[dim] for dim in dims}
            self.arrays[name] = xr.DataArray(empty, dims=dims, coords=where)
        return self.arrays[name].values


def cone_variables(sample: Sample, lens: "Cones") -> dict[str, xr.DataArray]:
    """Every variable of the result."""
    table = _ConeTable(lens.classes)
    classes = len(lens.classes)
    to_means = mean_direction_cosines(sample.units, sample.labels, classes, keep=lens.keep)
    separations = []
    for c in range(classes):
        chosen = sample.representatives(c, lens.representative, lens.draws)
        table["draws_count", axes.DIRECTION][c] = len(chosen)
        cosines = representative_cosines(sample.units, chosen, keep=lens.keep)
        _by_label(table, "cosine", c, cosines, sample)
        _by_label(table, "mean_cosine", c, to_means[:, c : c + 1], sample)
        separations.append(separation(cosines, sample.labels == c))
        _separated(table, "auroc", c, separations[-1])
        _separated(table, "auroc_mean", c, separation(to_means[:, c : c + 1], sample.labels == c))
        _right_and_wrong(table, c, cosines, sample)
        _neighbours(table, c, chosen, sample, lens.classes)
    for name, centred in (("class_cosine", False), ("class_cosine_centred", True)):
        by_class = class_cosines(sample.units, sample.labels, classes, centred=centred)
        table[name, axes.DIRECTION, axes.DIRECTION_B][:] = by_class.numpy()
        pairs = _pairs(sample.labels, classes) * ~by_class.isnan().numpy()
        table[f"{name}_count", axes.DIRECTION, axes.DIRECTION_B][:] = pairs
    table["auroc_bottom_q", axes.DIRECTION][:] = q = lowest_q(separations)
    table["auroc_bottom_q_count", axes.DIRECTION][:] = np.where(np.isnan(q), 0, table["auroc_count", axes.DIRECTION])
    _accuracy(table, lens.confusion.cpu().numpy())
    _correlated(table)
    for name, text in _DESCRIPTIONS.items():
        table.arrays[name].attrs["description"] = text
    return table.arrays


def _put(table: _ConeTable, key: tuple[str, ...], where: "int | slice | tuple[int, ...]", found: Estimate) -> None:
    """An estimate, its standard error and its count, at some place of the variable `key`."""
    name, *dims = key
    for tail, numbers in (("", found.value), ("_se", found.se), ("_count", found.count)):
        table[f"{name}{tail}", *dims][where] = numbers


def _by_label(table: _ConeTable, name: str, c: int, cosines: Float[Tensor, "text draw"], sample: Sample) -> None:
    """Mean over draws, then over the texts of each class, with its standard error; quantiles over both."""
    both = (axes.DIRECTION, axes.LABEL)
    for label in range(len(table.coordinates[axes.LABEL])):
        block = cosines[sample.labels == label]
        each = block.nanmean(1) if block.shape[1] else block.new_full((len(block),), torch.nan)
        each = each[~each.isnan()]
        _put(table, (name, *both), (c, label), Estimate.mean(each.numpy()))
        if name == "cosine":
            quantiles = table["cosine_quantile", *both, axes.QUANTILE]
            quantiles[c, label] = np.quantile(block[~block.isnan()].numpy(), QUANTILES) if len(each) else np.nan
    if name == "cosine":
        table["cosine_quantile_count", *both][c] = table["cosine_count", *both][c]


def _separated(table: _ConeTable, name: str, c: int, separation: Separation) -> None:
    table[name, axes.DIRECTION][c] = separation.value
    table[f"{name}_se", axes.DIRECTION][c] = separation.error
    # Missing as long as one side is; an error needs two on each.
    table[f"{name}_count", axes.DIRECTION][c] = min(separation.own, separation.other)


def lowest_q(separations: Sequence[Separation]) -> Float[np.ndarray, " class"]:
    """How sure it is that each class differs from the one that is separated least: a text counts in every class."""
    values, terms = np.array([one.value for one in separations]), torch.stack([one.terms for one in separations])
    count = np.array([float(min(one.own, one.other)) for one in separations])
    return extreme_q(values, (terms @ terms.mT).numpy(), count, count > 1, largest=False, corrected=True)


def _right_and_wrong(table: _ConeTable, c: int, cosines: Float[Tensor, "text draw"], sample: Sample) -> None:
    own = sample.labels == c
    for name, which in (("own_right", own & (sample.predicted == c)), ("own_wrong", own & (sample.predicted != c))):
        each = cosines[which].nanmean(1) if cosines.shape[1] else torch.zeros(0)
        each = each[~each.isnan()]
        _put(table, (name, axes.DIRECTION), c, Estimate.mean(each.numpy()))


def _neighbours(
    table: _ConeTable, c: int, chosen: Int[Tensor, " draw"], sample: Sample, classes: tuple[str, ...]
) -> None:
    """The texts closest to the first representative, of its class and of others, and those of its class farthest."""
    dims = (axes.DIRECTION, axes.NEIGHBOUR, axes.RANK)
    cosine, count = table["neighbour_cosine", *dims], table["neighbour_cosine_count", *dims]
    names, labels = table["neighbour_id", *dims], table["neighbour_label", *dims]
    first = table["representative_id", axes.DIRECTION]
    if not len(chosen):
        return
    first[c] = sample.ids[int(chosen[0])]
    cosines = (sample.units @ sample.units[chosen[0]]).clamp(-1, 1).round(decimals=12)
    rest = torch.arange(len(cosines)) != chosen[0]
    own = sample.labels == c
    for number, (which, sign) in enumerate(((own & rest, 1), (~own, 1), (own & rest, -1))):
        places = which.nonzero()[:, 0]
        order = places[torch.argsort(-sign * cosines[places], stable=True)][:NEAREST]
        for rank, text in enumerate(order.tolist()):
            cosine[c, number, rank], count[c, number, rank] = float(cosines[text]), 1
            names[c, number, rank], labels[c, number, rank] = sample.ids[text], classes[int(sample.labels[text])]


def _pairs(labels: Int[Tensor, " text"], classes: int) -> np.ndarray:
    """The smaller number of texts of each two classes."""
    counts = torch.bincount(labels, minlength=classes)
    return torch.minimum(counts[:, None], counts[None]).numpy()


def _accuracy(table: _ConeTable, confusion: np.ndarray) -> None:
    found = Estimate.share(np.diag(confusion).astype(float), confusion.sum(1).astype(float))
    _put(table, ("accuracy", axes.LABEL), slice(None), found)


def _correlated(table: _ConeTable) -> None:
    """Over classes: is the class whose texts lie closer together the one that is classified better?"""
    own = np.diag(table["cosine", axes.DIRECTION, axes.LABEL])
    accuracy = table["accuracy", axes.LABEL]
    finite = ~np.isnan(own) & ~np.isnan(accuracy)
    one, other = (torch.tensor(values[finite], dtype=torch.float64) for values in (own, accuracy))
    ranked = spearman(one.round(decimals=9), other.round(decimals=9)) if finite.sum() > 2 else None
    linear = float(np.corrcoef(one, other)[0, 1]) if ranked is not None else np.nan
    for name, value in (("pearson", linear), ("spearman", np.nan if ranked is None else ranked)):
        table.arrays[name] = xr.DataArray(np.float64(value))
        table.arrays[f"{name}_count"] = xr.DataArray(np.int64(0 if ranked is None else finite.sum()))
