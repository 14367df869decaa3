"""The numbers of the `cones` lens as plain values, from vectors in memory: what a cell keeps of a set of classes."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.lens.cones.formulas import class_cosines, mean_direction_cosines, representative_cosines, separation
from lorgnette.lens.geometry.isotropy import effective_rank
from lorgnette.statistics.spearman import spearman

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_DIGITS = 6


def cone_numbers(
    vectors: Float[Tensor, "item dim"],
    labels: Int[Tensor, " item"],
    predicted: Int[Tensor, " item"],
    classes: int,
    *,
    how: str = "random",
    draws: int = 20,
    seed: int = 0,
) -> dict[str, Any]:
    """Cosines with representatives and with class means, [direction][class of the item], and how they separate.

    how="random": up to `draws` representatives of each class, drawn among the items classified right, each left out of
    what it is compared with. how="first": the first such item, kept, at cosine 1 (the authors' code). The items without
    a direction are left out and counted.
    """
    there = vectors.norm(dim=-1) > 0
    units, labels, predicted = vectors[there].double(), labels[there], predicted[there]
    units = units / units.norm(dim=-1, keepdim=True)
    keep = how == "first"
    chosen = [_representatives((labels == c) & (predicted == c), how, draws, seed + c) for c in range(classes)]
    cosines = [representative_cosines(units, one, keep=keep) for one in chosen]
    to_means = mean_direction_cosines(units, labels, classes, keep=keep)
    each = [block.nanmean(1) for block in cosines]  # over draws, then over items, as the lens
    own = [labels == c for c in range(classes)]
    right = predicted == labels
    found: dict[str, Any] = {
        "zero_vectors": int((~there).sum()),
        "items": [int(one.sum()) for one in own],
        "accuracy": [_mean(right[one].double()) for one in own],
        "draws": [len(one) for one in chosen],
        "cosine": [[_mean(block[one]) for one in own] for block in each],
        "quantile": [[_quantiles(block[one]) for one in own] for block in cosines],
        "auroc": [_number(separation(cosines[c], own[c]).value) for c in range(classes)],
        "own_right": [_mean(each[c][own[c] & right]) for c in range(classes)],
        "own_wrong": [_mean(each[c][own[c] & ~right]) for c in range(classes)],
        "representatives": [[_between(units[one], units[two], i == j) for j, two in enumerate(chosen)]
                            for i, one in enumerate(chosen)],
        "mean_cosine": [[_mean(to_means[one, c]) for one in own] for c in range(classes)],
        "auroc_mean": [_number(separation(to_means[:, c : c + 1], own[c]).value) for c in range(classes)],
    }  # fmt: skip
    for name, centred in (("class_cosine", False), ("class_cosine_centred", True)):
        matrix = class_cosines(units, labels, classes, centred=centred)
        found[name] = [[_number(value) for value in row] for row in matrix.tolist()]
    return {**found, **correlations([found["cosine"][c][c] for c in range(classes)], found["accuracy"])}


def nearest_numbers(
    vectors: Float[Tensor, "item dim"], labels: Int[Tensor, " item"], predicted: Int[Tensor, " item"], classes: int
) -> dict[str, Any]:
    """How often the nearest of the class directions is that of the item's class, and that of the class predicted.

    A direction is the mean of a class's unit vectors, without the item itself. Also how many directions there are: the
    effective rank of the class means, as they are and centred, and of all items.
    """
    there = vectors.norm(dim=-1) > 0
    units, labels, predicted = vectors[there].double(), labels[there], predicted[there]
    units = units / units.norm(dim=-1, keepdim=True)
    nearest = mean_direction_cosines(units, labels, classes, keep=False).nan_to_num(nan=-2.0).argmax(-1)
    means = torch.zeros(classes, units.shape[1], dtype=units.dtype).index_add_(0, labels, units)
    means = means / torch.bincount(labels, minlength=classes).clamp(min=1)[:, None]
    centred, spread = means - means.mean(0), units - units.mean(0)
    ranks = {"means": means, "means_centred": centred, "items": units, "items_centred": spread}
    return {
        "right": _mean((nearest == labels).double()),
        "as_predicted": _mean((nearest == predicted).double()),
        "by_class": [_mean((nearest == labels)[labels == c].double()) for c in range(classes)],
        "rank": {name: _number(float(effective_rank(rows.T @ rows))) for name, rows in ranks.items()},
    }


def correlations(own: Sequence[float | None], accuracy: Sequence[float | None]) -> dict[str, float | None]:
    """Pearson and Spearman over classes of the cosine with the own class and accuracy; None for fewer than three."""
    pairs = [(a, b) for a, b in zip(own, accuracy, strict=True) if a is not None and b is not None]
    if len(pairs) < 3:
        return {"pearson": None, "spearman": None}
    one, other = torch.tensor(pairs, dtype=torch.float64).round(decimals=9).T
    if one.max() == one.min() or other.max() == other.min():
        return {"pearson": None, "spearman": None}
    ranked = spearman(one, other)
    return {"pearson": _number(float(torch.corrcoef(torch.stack([one, other]))[0, 1])), "spearman": _number(ranked)}


def _representatives(right: Bool[Tensor, " item"], how: str, draws: int, seed: int) -> Int[Tensor, " draw"]:
    places = right.nonzero()[:, 0]
    if how == "first":
        return places[:1]
    return places[torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))[:draws]]


def _between(one: Float[Tensor, "draw dim"], two: Float[Tensor, "draw2 dim"], same: bool) -> float | None:
    """Mean cosine between the representatives of two classes; of one class, between different ones."""
    cosines = one @ two.T
    return _mean(cosines[~torch.eye(len(one), dtype=torch.bool)] if same else cosines)


def _quantiles(values: Float[Tensor, "..."]) -> list[float] | None:
    """Over items and draws; NaN (a representative with itself) left out."""
    flat = values[~values.isnan()].sort().values
    if not len(flat):
        return None
    # By hand: torch.quantile refuses more than 16 million values.
    places = torch.tensor(QUANTILES, dtype=torch.float64) * (len(flat) - 1)
    low = places.floor().long()
    part = places - low
    values = flat[low] * (1 - part) + flat[(low + 1).clamp(max=len(flat) - 1)] * part
    return [round(value, _DIGITS) for value in values.tolist()]


def _mean(values: Float[Tensor, "..."]) -> float | None:
    values = values[~values.isnan()]
    return round(float(values.mean()), _DIGITS) if values.numel() else None


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else round(float(value), _DIGITS)
