"""From numbers to labels: the thresholds, what is chosen on one part of the corpus and holds on the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from lorgnette import axes
from lorgnette.figures.finding import HALF
from lorgnette.lens.moments import Moments
from lorgnette.lens.relations.lens import PARTS
from lorgnette.statistics.spearman import spearman
from lorgnette.syntax.relation_names import ALL
from lorgnette.syntax.relations import share_interval

if TYPE_CHECKING:
    from lorgnette.lens.roles.lens import Roles


@dataclass(frozen=True)
class Rule:
    """When a number makes a label."""

    about: str
    threshold: float
    above: bool = True
    inclusive: bool = False

    def holds(self, number: xr.DataArray) -> xr.DataArray:
        if self.inclusive:
            return number >= self.threshold
        return number > self.threshold if self.above else number < self.threshold


RULES: Mapping[str, Rule] = {
    "positional": Rule("share of queries whose largest weight is at one offset", 0.9, inclusive=True),
    "syntactic": Rule("accuracy in the best relation and way minus the best fixed offset", 0.1, inclusive=True),
    "rare": Rule("share of texts whose most read piece is one of the two rarest (and .1 above chance)", 0.5),
    "special": Rule("weight on special tokens (on the first token where there are none), over all queries", HALF),
    "punctuation": Rule("weight on punctuation", 0.5),
    "same_word": Rule("weight on the same word elsewhere, over queries that see one", 0.5),
    "induction": Rule("weight on what followed the same word before, over queries that see one", 0.5),
    "self": Rule("weight on the token itself", 0.5),
    "previous": Rule("weight on the previous token", 0.5),
    "next": Rule("weight on the next token", 0.5),
    "last": Rule("weight on the last token", 0.5),
    "broad": Rule("normalised entropy", 0.8),
    "dead": Rule("norm of what the head gives over the mean of its layer", 0.1, above=False),
}
"""self, previous, next and last are the patterns of Raganato & Tiedemann 2018; the paper gives no threshold."""

OVER_CHANCE = 0.1
EDGE = 0.5
"""An offset that fewer than this share of the queries have is no candidate for a positional head."""
FEWEST = 5
"""Texts with such a number that a part must have for a label."""
NOTHING = "none"


def labelled(lens: "Roles", parsed: xr.Dataset | None) -> dict[str, xr.DataArray]:
    """All variables of the result."""
    tables = _tables(lens.of_roles)
    rows, extra = _role_tables(tables, _tables(lens.of_offsets_read)["peak_at"], parsed, lens.least)
    names = [name for name in RULES if name in rows]
    stacked = {tail: xr.concat([rows[name][tail] for name in names], dim=axes.ROLE).transpose(..., axes.ROLE, axes.PART)
               for tail in ("", "_se", "_count")}  # fmt: skip
    numbers = {f"number{tail}": array.assign_coords({axes.ROLE: names}) for tail, array in stacked.items()}
    numbers["number_count"] = numbers["number_count"].fillna(0).astype("int64")
    bounds = _bounds(numbers["number"], numbers["number_se"], numbers["number_count"])
    holds = _holds(numbers, tables["rare_chance"][""], names)
    chosen, label = holds.sel({axes.PART: PARTS[0]}, drop=True), holds.all(axes.PART)
    label.loc[{axes.ROLE: "special"}] = _special(tables["special"])
    variables = {
        **numbers,
        **bounds,
        "label": label,
        "chosen": chosen,
        "roles": _words(label, extra),
        **{f"{name}{tail}": tables[name][tail] for name in ("confidence", "peak") for tail in ("", "_se", "_count")},
        **extra,
        **_stability(numbers["number"], holds),
    }
    for name, text in _DESCRIPTIONS.items():
        variables[name].attrs["description"] = text
    return variables


_DESCRIPTIONS = {
    "number": "what a role is judged by, in each part: " + "; ".join(f"{n}: {r.about}" for n, r in RULES.items()),
    "label": "the role fits in both parts; special: over all texts",
    "chosen": "the role fits in the development part",
    "roles": "the labels in words",
    "confidence": "largest weight on a word, mean over words (end-of-sentence and other special tokens left out)",
    "peak": "largest weight on any token, mean over words",
    "offset": "where a positional head would read: the offset chosen in the development part",
    "relations": "relations and ways in which a head is at least .1 better than the best offset, in both parts",
    "stability": "Spearman's ρ across heads between the numbers of both parts",
    "agreement": "share of heads for which both parts say the same of the role",
}


def _special(table: dict[str, xr.DataArray]) -> xr.DataArray:
    """Nothing is chosen here, so that nothing need be held out: over all texts, as the lens `weights` counts heads."""
    whole = (table[""].fillna(0.0) * table["queries"]).sum(axes.PART) / table["queries"].sum(axes.PART)
    return RULES["special"].holds(whole) & (table["_count"].sum(axes.PART) >= FEWEST)


def _tables(moments: Moments) -> dict[str, dict[str, xr.DataArray]]:
    """Each number as [stack layer head … part], with `_se`, `_count` and the queries it is over."""
    arrays, queries = moments.arrays(), moments.weights()
    return {
        name: {**{tail: arrays[name + tail] for tail in ("", "_se", "_count")}, "queries": queries[name]}
        for name in moments.variables
    }


def _role_tables(
    tables: dict[str, dict[str, xr.DataArray]],
    peak_at: dict[str, xr.DataArray],
    parsed: xr.Dataset | None,
    least: int,
) -> tuple[dict[str, dict[str, xr.DataArray]], dict[str, xr.DataArray]]:
    """What each role is judged by, and what goes with it."""
    rows = {name: tables[name] for name in RULES if name in tables}
    rows["positional"], offset = _positional(peak_at, tables["peak"]["queries"])
    layer = tables["norm"][""].mean(axes.HEAD)
    rows["dead"] = {**tables["norm"], "": tables["norm"][""] / layer, "_se": tables["norm"]["_se"] / layer}
    rows["syntactic"], relations = _syntactic(parsed, tables["peak"], least)
    return rows, {"offset": offset, "relations": relations}


def _positional(
    peak_at: dict[str, xr.DataArray], queries: xr.DataArray
) -> tuple[dict[str, xr.DataArray], xr.DataArray]:
    """The share of the offset that is best in the development part, and that offset."""
    usual = peak_at["queries"] >= EDGE * queries
    share = peak_at[""].where(usual).sel({axes.PART: PARTS[0]}, drop=True).fillna(-1.0)
    best = share.argmax(axes.OFFSET)
    offset = peak_at[""][axes.OFFSET][best].astype("int64").drop_vars(axes.OFFSET, errors="ignore")
    return {
        tail: peak_at[tail].isel({axes.OFFSET: best}).drop_vars(axes.OFFSET) for tail in ("", "_se", "_count")
    }, offset


def _syntactic(
    parsed: xr.Dataset | None, like: dict[str, xr.DataArray], least: int
) -> tuple[dict[str, xr.DataArray], xr.DataArray]:
    """The excess over the best offset in the relation and way that is best in the development part."""
    words = xr.full_like(like[""].isel({axes.PART: 0}, drop=True), "", dtype=object)
    empty = {"": like[""] * np.nan, "_se": like[""] * np.nan, "_count": like["_count"] * 0}
    if parsed is None:
        return empty, words
    usable = [r for r in parsed[axes.RELATION].values if r != ALL and int(parsed.pairs.sel(relation=r).min()) >= least]
    if not usable:
        return empty, words
    data = parsed.sel({axes.RELATION: usable, axes.WAY: ["to_head", "to_dependent"]})
    place = data.offset_accuracy.sel({axes.PART: PARTS[0]}, drop=True).argmax(axes.OFFSET)
    excess = data.accuracy - data.offset_accuracy.isel({axes.OFFSET: place}).drop_vars(axes.OFFSET)
    error = np.hypot(data.accuracy_se, data.offset_accuracy_se.isel({axes.OFFSET: place}).drop_vars(axes.OFFSET))
    flat = {"": excess, "_se": error, "_count": data.accuracy_count}
    flat = {tail: array.stack(kind=(axes.RELATION, axes.WAY)).drop_vars(("kind", axes.RELATION, axes.WAY))
            for tail, array in flat.items()}  # fmt: skip
    best = flat[""].sel({axes.PART: PARTS[0]}, drop=True).fillna(-1.0).argmax("kind")
    for cell in np.argwhere(RULES["syntactic"].holds(excess).all(axes.PART).values):
        at = dict(zip((d for d in excess.dims if d != axes.PART), cell, strict=True))
        name = f"{usable[at.pop(axes.RELATION)]} {data[axes.WAY].values[at.pop(axes.WAY)]}"
        words[at] = f"{words[at].item()}, {name}".removeprefix(", ")
    return {tail: array.isel(kind=best).transpose(*like[""].dims) for tail, array in flat.items()}, words


def _bounds(number: xr.DataArray, error: xr.DataArray, count: xr.DataArray) -> dict[str, xr.DataArray]:
    """95 % intervals: Wilson's for shares, ± 1.96 standard errors for what is none."""
    cells = zip(*(array.values.ravel().tolist() for array in (number, error, count)), strict=True)
    wilson = np.array([_interval(*cell) for cell in cells])
    ratio = number[axes.ROLE].isin(["dead", "syntactic"])
    out = {}
    for end, (name, sign) in enumerate((("number_low", -1), ("number_high", 1))):
        share = number.copy(data=wilson[:, end].reshape(number.shape))
        bound = xr.where(ratio, number + sign * 1.96 * error, share)
        out[name] = bound.where(count > 1).transpose(*number.dims)
    return out


def _interval(share: float, error: float, count: int) -> tuple[float, float]:
    return share_interval(min(max(share, 0.0), 1.0), error, count) if count else (np.nan, np.nan)


def _holds(numbers: dict[str, xr.DataArray], chance: xr.DataArray, names: list[str]) -> xr.DataArray:
    """[… role part]: the rule holds, and enough texts say so."""
    each = []
    for name in names:
        number = numbers["number"].sel({axes.ROLE: name}, drop=True)
        holds = RULES[name].holds(number) & (numbers["number_count"].sel({axes.ROLE: name}, drop=True) >= FEWEST)
        each.append(holds & (number >= chance + OVER_CHANCE) if name == "rare" else holds)
    return xr.concat(each, dim=axes.ROLE).assign_coords({axes.ROLE: names}).transpose(..., axes.ROLE, axes.PART)


def _words(label: xr.DataArray, extra: dict[str, xr.DataArray]) -> xr.DataArray:
    """The labels of each head as one text: "positional (-1), previous", or "none"."""
    out = xr.full_like(label.isel({axes.ROLE: 0}, drop=True), "", dtype=object)
    names = label[axes.ROLE].values.tolist()
    for cell in np.ndindex(out.shape):
        at = dict(zip(out.dims, cell, strict=True))
        found = [name for name, yes in zip(names, label[at].values, strict=True) if yes]
        told = {"positional": f"positional ({extra['offset'][at].item():+d})"}
        told["syntactic"] = f"syntactic ({extra['relations'][at].item()})"
        out[at] = ", ".join(told.get(name, name) for name in found) or NOTHING
    return out.astype(str)


def _stability(number: xr.DataArray, holds: xr.DataArray) -> dict[str, xr.DataArray]:
    """By stack and role: do both parts rank the heads alike, and do they say the same of them?"""
    stacks, roles = number[axes.STACK].values.tolist(), number[axes.ROLE].values.tolist()
    rho, counts = np.full((len(stacks), len(roles)), np.nan), np.zeros((len(stacks), len(roles)), dtype="int64")
    for s, stack in enumerate(stacks):
        for r, role in enumerate(roles):
            one, other = (
                number.sel({axes.STACK: stack, axes.ROLE: role, axes.PART: part}).values.ravel() for part in PARTS
            )
            there = np.isfinite(one) & np.isfinite(other)
            found = spearman(torch.tensor(one[there]), torch.tensor(other[there])) if there.sum() > 2 else None
            if found is not None:
                rho[s, r], counts[s, r] = found, there.sum()
    same = holds.sel({axes.PART: PARTS[0]}, drop=True) == holds.sel({axes.PART: PARTS[1]}, drop=True)
    dims = (axes.STACK, axes.ROLE)
    return {
        "stability": xr.DataArray(rho, dims=dims),
        "stability_count": xr.DataArray(counts, dims=dims),
        "agreement": same.mean((axes.LAYER, axes.HEAD)).transpose(*dims),
    }
