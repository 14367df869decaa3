"""The finished cells as labelled arrays, and the statistics of heads and layers that are read off them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from lorgnette.lens.trees.lens import WAYS
from lorgnette.looking.controls import TRAINED
from lorgnette.statistics.estimate import Estimate as Measured
from lorgnette.syntax.attachment import BASELINES, SCORES
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of
from reproductions.raganato2018.grid import MULTI30K, TREEBANK, TREEBANKS

PATTERNS = ("self", "previous", "next", "last")
HALF = 0.5
"""A head follows a pattern if more than half of the rows of words have their largest weight there."""
_BY_BLOCK = ("block", "layer", "head", "way")


def conditions(cells: Finished, **labels: str) -> list[str]:
    """The conditions under which this was measured; none without the trained model, beside which controls stand."""
    there = cells.labels("condition", **labels)
    return there if TRAINED in there else []


def models(cells: Finished, kind: str) -> list[str]:
    return [model for model in TREEBANKS if conditions(cells, kind=kind, model=model)]


def tasks(cells: Finished) -> list[str]:
    return [task for task in cells.labels("task") if conditions(cells, kind="probe", task=task)]


def trees(cells: Finished, model: str, condition: str = TRAINED) -> xr.Dataset:
    """`uas` and `baseline_uas` in each block of sentences, every score over the whole text; counts are attributes."""
    cell = cells.one(kind="trees", model=model, condition=condition)
    variables: dict[str, Any] = {
        "uas": (_BY_BLOCK, _array(cell["by_block"]["uas"])),
        "baseline_uas": (("block", "baseline"), _array(cell["by_block"]["baseline_uas"])),
    }
    for prefix, axes in (("", _BY_BLOCK[1:]), ("layer_", ("layer", "way")), ("baseline_", ("baseline",))):
        scores = np.stack([_array(cell["whole"][f"{prefix}{score}"]) for score in SCORES])
        variables[f"whole_{prefix or 'head_'}scores"] = (("score", *axes), scores)
    layers, heads = variables["uas"][1].shape[1:3]
    coordinates = {"layer": range(1, layers + 1), "head": range(1, heads + 1), "way": list(WAYS)}
    coordinates |= {"baseline": list(BASELINES), "score": list(SCORES)}
    counts = {name: cell[name] for name in ("corpus", "sentences", "words")}
    return xr.Dataset(variables, coords=coordinates, attrs=counts)


def patterns(cells: Finished, model: str, condition: str = TRAINED, text: str = TREEBANK) -> xr.DataArray:
    """Share of the rows of words whose largest weight is at a pattern, in each block [pattern block layer head]."""
    cell = cells.one(kind="patterns", model=model, condition=condition, text=text)
    shares = np.stack([_array(cell["by_block"][f"peak_{pattern}"]) for pattern in PATTERNS])
    return _labelled(shares, ("pattern", "block", "layer", "head"), corpus=cell["corpus"])


def small_patterns(cells: Finished, languages: str) -> xr.DataArray:
    """The same of a small model, over all its text [pattern layer head]."""
    cell = cells.one(kind="small", languages=languages)
    shares = np.stack([_array(cell["patterns"][f"peak_{pattern}"]) for pattern in PATTERNS])
    return _labelled(shares, ("pattern", "layer", "head"), corpus=f"{MULTI30K}:val")


def probe(cells: Finished, task: str, condition: str = TRAINED) -> xr.Dataset:
    """Accuracy, its standard error and selectivity by layer (0: embeddings); baselines and counts are attributes."""
    cell = cells.one(kind="probe", task=task, condition=condition)
    curves = {name: ("layer", _array(cell[name])) for name in ("accuracy", "accuracy_se", "selectivity")}
    flat = ("majority", "type_majority", "embedding_accuracy", "labels", "train_items", "test_items")
    about = {name: cell[name] for name in (*flat, "trained_on", "corpus")}
    about["converged"] = f"{sum(cell['converged']):.0f} of {len(cell['converged'])}"
    return xr.Dataset(curves, coords={"layer": range(len(cell["accuracy"]))}, attrs=about)


@dataclass(frozen=True)
class BestHead:
    """The head that is best in the even blocks, and its UAS in the odd ones."""

    layer: int
    head: int
    uas: Float[np.ndarray, " block"]

    @property
    def name(self) -> str:
        return f"{self.layer}-{self.head}"


def best_head(data: xr.Dataset, way: str = "to_head", layers: slice = slice(None)) -> BestHead:
    values = data["uas"].sel(way=way).isel(layer=layers)
    at = values.isel(block=slice(0, None, 2)).mean("block").argmax(("layer", "head"))
    chosen = values.isel(at)
    return BestHead(int(chosen["layer"]), int(chosen["head"]), chosen.isel(block=slice(1, None, 2)).values)


def average_head(data: xr.Dataset, way: str = "to_head") -> Float[np.ndarray, " block"]:
    return data["uas"].sel(way=way).mean(("layer", "head")).values


def baseline(data: xr.Dataset, name: str) -> Float[np.ndarray, " block"]:
    return data["baseline_uas"].sel(baseline=name).values


def followers(shares: xr.DataArray, pattern: str) -> list[str]:
    """Heads that follow a pattern, by their mean over blocks."""
    mean = shares.sel(pattern=pattern)
    mean = mean.mean("block") if "block" in mean.dims else mean
    return [f"{layer + 1}-{head + 1}" for layer, head in np.argwhere(mean.values > HALF)]


def certain_followers(shares: xr.DataArray, pattern: str) -> Estimate:
    """How many heads have their whole interval above one half; up to how many reach it."""
    columns = shares.sel(pattern=pattern).stack(each=("layer", "head")).values.T
    ends = [mean_of(column, "blocks") for column in columns]
    sure = sum(end.low is not None and end.low > HALF for end in ends)
    perhaps = sum(end.high is not None and end.high > HALF for end in ends)
    return Estimate(value=sure, low=sure, high=perhaps, n=shares.sizes["block"], over="blocks", method="t, by head")


def best_layer(data: xr.Dataset, layers: Sequence[int]) -> xr.Dataset:
    """The layer of these with the highest accuracy, the first of equals."""
    chosen = data.sel(layer=list(layers))
    return chosen.isel(layer=int(chosen["accuracy"].argmax("layer")))


def layers_of(data: xr.Dataset) -> list[int]:
    """All but the embeddings."""
    return [int(layer) for layer in data["layer"].values if layer > 0]


def inside_less_outside(cells: Finished, task: str, inside: Sequence[int], outside: Sequence[int]) -> Estimate:
    """The best layer of some less the best of others, on the same words, 95 % over texts.

    The two layers are chosen on one half of the texts and compared on the other, and the other way round: a maximum on
    the words that chose it is too high, and higher where there are more layers to choose from.
    """
    cell = cells.one(kind="compared", task=task)
    right, words = cell["right"].values.astype(float), cell["words"].values.astype(float)
    gaps, sizes = [], []
    for half in (0, 1):
        there = np.arange(len(words)) % 2 == half
        chosen = right[:, there].sum(1)
        first, second = (max(layers, key=lambda layer: chosen[layer]) for layers in (inside, outside))
        gaps.append((right[first] - right[second])[~there])
        sizes.append(words[~there])
    gap, size = np.concatenate(gaps), np.concatenate(sizes)
    value, n = gap.sum() / size.sum(), len(gap)
    terms = (gap - value * size) / size.sum()
    error = float(np.sqrt(n / (n - 1) * np.square(terms).sum()))
    return Estimate.of(Measured(float(value), error, n - 1), "texts", "t, paired", n)


def less(one: xr.Dataset, other: xr.Dataset) -> Estimate:
    """Accuracy of one layer less that of another, 95 % over sentences.

    Where both are of the same words the interval could be narrower; errors are added as if they were not.
    """
    se = float(np.hypot(one["accuracy_se"], other["accuracy_se"]))
    return over_sentences(float(one["accuracy"] - other["accuracy"]), se, "normal, errors added")


def over_sentences(value: float, se: float, method: str = "normal") -> Estimate:
    """The 95 % interval of a probe's number."""
    return Estimate.of_many(value, se, "sentences", method)


def _array(values: Any) -> np.ndarray:
    return np.array(values, dtype=float)


def _labelled(values: np.ndarray, axes: Sequence[str], **about: Any) -> xr.DataArray:
    return xr.DataArray(values, dims=axes, coords={"pattern": list(PATTERNS)}, attrs=about)
