"""The cells of the heads part as labelled arrays, and the statistics of heads that are read off them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from lorgnette.statistics.rank_agreement import correlations, ranked, spearman_matrix, within_groups
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished, MissingCell
from reproductions.voita2019.grid import MAPS, MULTI30K, TRAINED, UD

STACKS = {"encoder": "encoder self", "decoder": "decoder self", "cross": "decoder-encoder"}
TEXTS = {MULTI30K: "Multi30k", UD: "PUD"}
THREE = ("positional", "syntactic", "rare")
"""The functions of the paper."""
GRADIENT, ABLATION = "gradient", "loss without"
SIGNALS = (*MAPS, GRADIENT, ABLATION)
_DRAWS = 2000
HeadMap = Float[np.ndarray, "layer head"]
Place = tuple[int, int]
"""Layer and head, from 0."""


@cache
def signal(
    cells: Finished, name: str, stack: str = "encoder", *, corpus: str = MULTI30K, condition: str = TRAINED
) -> xr.DataArray:
    """A number for each head of a stack, in every block of texts [block layer head]: confidence, relevance by a rule,
    gradient, or the rise of the loss without the head."""
    if name in (GRADIENT, ABLATION):
        return _without(cells, "gradient" if name == GRADIENT else "change", stack)
    for cell in cells.of(kind="maps", corpus=corpus, condition=condition):
        if name in cell.result["maps"]:
            return _by_stack(cell.result, cell.result["maps"][name], "block").sel(stack=stack)
    raise MissingCell(f"{name} of {corpus}, {condition}")


def signals(cells: Finished, stack: str = "encoder") -> dict[str, xr.DataArray]:
    """All there are."""
    out = {}
    for name in SIGNALS:
        try:
            out[name] = signal(cells, name, stack)
        except MissingCell:
            continue
    return out


def _without(cells: Finished, name: str, stack: str) -> xr.DataArray:
    # In the order of the keys, since intervals are of draws of blocks.
    blocks = [
        _by_stack(cell.result, cell.result[name]).sel(stack=stack)
        for cell in sorted(cells.of(kind="without"), key=lambda cell: cell.key)
        if stack == "encoder" or cell.labels["stacks"] == "all"
    ]
    if not blocks:
        raise MissingCell(f"{name} of the {stack}")
    return xr.concat(blocks, "block")


def _by_stack(cell: Mapping[str, Any], values: Any, *first: str) -> xr.DataArray:
    return xr.DataArray(
        np.array(values, dtype=float), dims=(*first, "stack", "layer", "head"), coords={"stack": cell["stacks"]}
    )


def head_map(blocks: xr.DataArray) -> HeadMap:
    """The mean over texts."""
    return blocks.mean("block").values


@cache
def roles(cells: Finished, corpus: str, condition: str = TRAINED) -> xr.Dataset:
    """`number` with its interval and `label` [stack layer head role …], labels as text, offsets; chance of a rare word
    in the attributes, and the best head for each relation, where the text has trees."""
    cell = cells.one(kind="roles", corpus=corpus, condition=condition)
    heads = ("stack", "layer", "head")
    variables: dict[str, Any] = {
        name: ((*heads, "role", "part"), np.array(cell[name], dtype=float))
        for name in ("number", "number_low", "number_high")
    }
    variables["label"] = ((*heads, "role"), np.array(cell["label"], dtype=bool))
    variables["words"] = (heads, np.array(cell["words"]))
    variables["offset"] = (heads, np.array(cell["offset"], dtype=float))
    coordinates = {"stack": cell["stacks"], "role": cell["roles"], "part": cell["parts"]}
    chance = float(np.array(cell["rare_chance"], dtype=float)[1])  # of the held-out part
    about = {"chance": chance, "relations": cell.get("relations", ())}
    return xr.Dataset(variables, coords=coordinates, attrs=about)


def labelled(data: xr.Dataset, role: str, stack: str = "encoder") -> Bool[np.ndarray, "layer head"]:
    return data["label"].sel(stack=stack, role=role).values


def best_for(data: xr.Dataset, role: str, layer: int | None = None) -> Place:
    """The encoder head that is best in the development part, of all or of one layer."""
    numbers = data["number"].sel(stack="encoder", role=role, part="development").fillna(-1.0).values
    if layer is not None:
        return layer, int(numbers[layer].argmax())
    at = np.unravel_index(int(numbers.argmax()), numbers.shape)
    return int(at[0]), int(at[1])


def held_out(data: xr.Dataset, role: str, place: Place) -> Estimate:
    """The number of a head in the part on which it was not chosen."""
    here = data.sel(stack="encoder", role=role, part="held_out").isel(layer=place[0], head=place[1])
    low, value, high = (float(here[name]) for name in ("number_low", "number", "number_high"))
    return Estimate(value=value, low=low, high=high, over="texts", method="Wilson")


def relation(data: xr.Dataset, name: str, way: str) -> Mapping[str, Any]:
    """The best head for a relation and way, and the best offset, in the held-out part."""
    for row in data.attrs["relations"]:
        if (row["relation"], row["way"]) == (name, way):
            return row
    raise MissingCell(f"{name}, {way}")


def excess(row: Mapping[str, Any]) -> Estimate:
    """Accuracy less that of the best offset; the errors of both are taken as independent."""
    halves = [(row[f"{name}high"] - row[f"{name}low"]) / 2 for name in ("", "baseline_")]
    value, half = row["accuracy"] - row["baseline"], float(np.hypot(*halves))
    return Estimate(value=value, low=value - half, high=value + half, n=row["pairs"], over="pairs", method="normal")


def with_a_role(cells: Finished) -> Bool[np.ndarray, "layer head"]:
    """Encoder heads that have one of the paper's three functions: syntax on PUD, the others on either text."""
    there = [roles(cells, corpus) for corpus in TEXTS if cells.of(kind="roles", corpus=corpus, condition=TRAINED)]
    if not there:
        raise MissingCell("roles")
    return np.any([labelled(data, role) for data in there for role in THREE], axis=0)


def top_shares(blocks: xr.DataArray, top: int = 2) -> Float[np.ndarray, " block"]:
    """Share of all relevance, regardless of sign, that the `top` heads of a layer have; mean over layers.

    Which heads these are is decided by the other half of the blocks, so that noise alone gives top / heads.
    """
    values, out = blocks.values, np.empty(len(blocks))
    for half in (0, 1):
        first = np.argsort(-np.abs(values[1 - half :: 2].mean(axis=0)), axis=-1)[:, :top]
        size = np.abs(values[half::2])
        chosen = np.take_along_axis(size, np.broadcast_to(first, (len(size), *first.shape)), axis=-1)
        out[half::2] = (chosen.sum(axis=-1) / size.sum(axis=-1)).mean(axis=-1)
    return out


def place_in_layer(values: HeadMap, place: Place) -> int:
    """1 for the head with the largest number of its layer."""
    layer, head = place
    return 1 + int((values[layer] > values[layer, head]).sum())


def correlation(one: xr.DataArray, other: xr.DataArray) -> Estimate:
    """ρ of ranks within layers of two signals, each a mean over its texts; the interval from a bootstrap over heads."""
    return rank_correlation(head_map(one), head_map(other))


def rho(one: xr.DataArray, other: xr.DataArray) -> float | None:
    """The same without the draws of its interval; None where a signal is the same for all heads."""
    value = float(correlations(ranked(ranks_in_layers(head_map(one), head_map(other))))[0, 1])
    return None if np.isnan(value) else value


def rank_correlation(one: HeadMap, other: HeadMap) -> Estimate:
    """The same of two maps."""
    rho, bounds = spearman_matrix(ranks_in_layers(one, other), draws=_DRAWS)
    if np.isnan(rho[0, 1]) or np.isnan(bounds[:, 0, 1]).any():  # a signal that is the same for all heads has no rank
        return Estimate(value=None, over="heads")
    low, high = (float(end) for end in bounds[:, 0, 1])
    return Estimate(value=float(rho[0, 1]), low=low, high=high, n=one.size, over="heads", method="bootstrap")


def ranks_in_layers(*maps: HeadMap) -> Float[np.ndarray, "signal head"]:
    """What differs between layers is gone."""
    layers = np.repeat(np.arange(len(maps[0])), maps[0].shape[1])
    return within_groups(np.array([each.ravel() for each in maps]), layers)


def reliability(blocks: xr.DataArray) -> float:
    """ρ within layers between the two halves of the texts, stepped up to all of them (Spearman-Brown)."""
    if len(blocks) < 2:
        return float("nan")
    half = rho(*(blocks.isel(block=slice(start, None, 2)) for start in (0, 1)))
    if half is None:
        return float("nan")
    return 2 * half / (1 + half) if half > 0 else 0.0


def name_of(place: Place) -> str:
    return f"{place[0] + 1}.{place[1] + 1}"
