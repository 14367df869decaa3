"""Tests of a head against its controls, over texts and corrected; a syntactic head must beat three of them."""

from dataclasses import replace

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.lens.relations.lens import PARTS
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery
from lorgnette.syntax.relation_names import ALL
from lorgnette.syntax.relations import WAYS

CONTROLS = ("others", "shuffled")
"""What a syntactic head must beat besides the best offset: who else peaks at the same goal, and the words shuffled."""
PARSED = WAYS[:2]
"""Ways in which a head may be syntactic: to_head and to_dependent."""
EXCESS = 0.1
"""How much larger than its control a number must be, in each part (Voita et al. 2019 over the best offset)."""
FEWEST = 5
"""Texts with such a number that a part must have for a label."""

Table = dict[str, xr.DataArray]
"""A number [stack layer head part] as "", "_se", "_count"; what it is over its control as "over" and "over_se"."""


def over_control(name: str) -> str:
    """What a number minus its control is called."""
    return f"{name}_excess"


def held_out_p(excess: xr.DataArray, error: xr.DataArray, count: xr.DataArray) -> xr.DataArray:
    """One-sided p of the excess over the control in the held-out texts, where nothing was chosen; missing for few."""
    value, error, count = (each.sel({axes.PART: PARTS[1]}, drop=True) for each in (excess, error, count))
    return Estimate(value, error, count).p_above.where((count >= FEWEST) & value.notnull())


def corrected(p: xr.DataArray) -> xr.DataArray:
    """p over all heads (and relations) as one family (Benjamini and Hochberg 1995)."""
    return false_discovery(p)


def syntactic(
    parsed: xr.Dataset | None, over: xr.Dataset | None, like: Table, least: int
) -> tuple[Table, xr.DataArray]:
    """The relation and way that is best in the development part, of those that beat their controls if any does.

        number   accuracy − accuracy of the best offset
        excess   accuracy − the largest of: best offset, words that are no pair with the goal, words shuffled

    p is the larger one of both controls' tests: a head must beat each of them.
    """
    words = xr.full_like(like[""].isel({axes.PART: 0}, drop=True), "", dtype=object)
    missing = like[""] * np.nan
    empty = {"": missing, "_se": missing, "_count": like["_count"] * 0, "over": missing, "over_se": missing}
    empty["q"] = missing.isel({axes.PART: 0}, drop=True)
    if parsed is None or over is None:
        return empty, words
    usable = [r for r in parsed[axes.RELATION].values if r != ALL and int(parsed.pairs.sel(relation=r).min()) >= least]
    if not usable:
        return empty, words
    cells = _cells(parsed.sel({axes.RELATION: usable, axes.WAY: list(PARSED)}), over.sel({axes.RELATION: usable}))
    holds = (cells["over"] >= EXCESS).all(axes.PART) & (cells["_count"] >= FEWEST).all(axes.PART)
    holds &= cells["q"] <= LEVEL
    kinds = [f"{relation} {way}" for relation in usable for way in PARSED]
    held_out = cells["over"].sel({axes.PART: PARTS[1]}, drop=True)
    for cell in np.argwhere(holds.values):
        at = dict(zip(holds.dims, cell, strict=True))
        name = f"{kinds[at['kind']]} {held_out[at].item():+.2f}"
        place = {dim: index for dim, index in at.items() if dim != "kind"}
        words[place] = f"{words[place].item()}, {name}".removeprefix(", ")
    development = cells["over"].sel({axes.PART: PARTS[0]}, drop=True).fillna(-2.0)
    best = (development + 4.0 * holds).argmax("kind")
    chosen = {name: each.isel(kind=best) for name, each in cells.items()}
    return {name: each.transpose(*(d for d in like[""].dims if d in each.dims)) for name, each in chosen.items()}, words


def _cells(parsed: xr.Dataset, over: xr.Dataset) -> Table:
    """Number, excess and q of every head, relation and way: [stack layer head part kind]."""
    gain = _over_offset(parsed)
    excesses = [gain.value, *(over[over_control(name)] for name in CONTROLS)]
    errors = [gain.se, *(over[f"{over_control(name)}_se"] for name in CONTROLS)]
    p = [held_out_p(e, s, parsed.accuracy_count) for e, s in zip(excesses[1:], errors[1:], strict=True)]
    excess, error = xr.concat(excesses, "control"), xr.concat(errors, "control")
    least = excess.fillna(np.inf).argmin("control")
    each = {
        "": excesses[0],
        "_se": errors[0],
        "_count": parsed.accuracy_count,
        "over": excess.isel(control=least),
        "over_se": error.isel(control=least),
        "q": corrected(xr.concat(p, "control").max("control", skipna=False)),
    }
    return {
        name: array.stack(kind=(axes.RELATION, axes.WAY)).drop_vars(("kind", axes.RELATION, axes.WAY))
        for name, array in each.items()
    }


def _over_offset(parsed: xr.Dataset) -> Estimate:
    """Accuracy minus that of the offset which is best in development, on the same texts.

    Its error is paired in the held-out part, where the products of both were added up; else it is the sum of the two.
    """
    place = parsed.offset_accuracy.sel({axes.PART: PARTS[0]}, drop=True).argmax(axes.OFFSET)
    offset = parsed.isel({axes.OFFSET: place}).drop_vars(axes.OFFSET)
    gain = Estimate.of(parsed, "accuracy").minus_correlated(Estimate.of(offset, "offset_accuracy"))
    if "gain_se" not in parsed:
        return gain
    held_out = parsed[axes.PART] == PARTS[1]
    return replace(gain, se=xr.where(held_out, parsed.gain_se, gain.se))
