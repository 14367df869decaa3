"""Matrices of cosines between classes, a value for each seed: what cones of classes and of tags have in common."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.statistics import COSINE, mean_of

ORTHOGONAL = 0.2
"""A cosine of at most this much, either way, is called orthogonal; fixed before anything was measured."""
CONE = 0.9
"""AUROC above which a class or a tag is said to have a cone; fixed before anything was measured, for tags."""
WITHIN = Bound.within(-ORTHOGONAL, ORTHOGONAL)
Pair = tuple[int, int]


def off_diagonal(matrix: xr.DataArray, chosen: Sequence[int] | None = None) -> dict[Pair, Estimate]:
    """(direction, class) → mean over seeds of [seed direction class], for different classes that have a cosine."""
    places = range(matrix.sizes["direction"]) if chosen is None else chosen
    cosines = {(i, j): mean_of(matrix.values[:, i, j], ends=COSINE) for i in places for j in places if i != j}
    return {pair: cosine for pair, cosine in cosines.items() if cosine.value is not None}


def orthogonal(
    id: str, text: str, matrix: xr.DataArray, chosen: Sequence[int] | None, published: Published | None, note: str
) -> Claim:
    """The typical pair: the mean of |cosine| over pairs of different classes, a value for each seed."""
    places = range(matrix.sizes["direction"]) if chosen is None else chosen
    pairs = [(i, j) for i in places for j in places if i != j]
    means = [float(np.nanmean([abs(one[pair]) for pair in pairs])) for one in matrix.values]
    return Claim(
        id=id,
        text=text,
        estimate=mean_of(means, ends=COSINE),
        bound=Bound.below(ORTHOGONAL),
        published=published,
        ours=published is None,
        note=note,
    )


def every_orthogonal(
    id: str, text: str, cosines: dict[Pair, Estimate], names: Sequence[str], of: str, note: str
) -> Claim:
    """Every pair must lie within ± the bound; shown is the one furthest from zero."""
    if not cosines:
        return Claim(id=id, text=text, estimate=Estimate(value=None), bound=WITHIN, note=note, ours=True)
    worst = max(cosines, key=lambda pair: abs(float(cosines[pair].value or 0)))
    said = f"furthest from 0: {names[worst[1]]} {of} with {names[worst[0]]} representatives"
    rest = [cosine for pair, cosine in cosines.items() if pair != worst]
    return Claim(id=id, text=text, estimate=cosines[worst], bound=WITHIN, also=rest, note=f"{said}; {note}", ours=True)


def every_above(
    id: str, text: str, areas: dict[str, Estimate], bound: float, note: str, published: Published | None = None
) -> Claim:
    """Every class must have an AUROC above the bound; shown is the least."""
    known = {name: area for name, area in areas.items() if area.value is not None}
    if not known:
        none = Estimate(value=None)
        return Claim(id=id, text=text, estimate=none, bound=Bound.above(bound), published=published, note=note)
    least = min(known, key=lambda name: float(known[name].value or 0))
    rest = [area for name, area in areas.items() if name != least]
    return Claim(
        id=id,
        text=text,
        estimate=known[least],
        bound=Bound.above(bound),
        also=rest,
        published=published,
        ours=published is None,
        note=f"least: {least}; {note}",
    )
