"""What the norms say of a head as a whole: how much it moves, and how long its output is."""

import xarray as xr

from lorgnette import axes
from lorgnette.lens.signals import Signal, Values

PARTITION = ("cls", "sep", "period_comma", "other")
"""Kinds of token that share every text without overlap."""


def _norm(data: xr.Dataset) -> Values:
    return _over_kinds(data["norm"]), None


def _length(data: xr.Dataset) -> Values:
    return _over_kinds(data["contribution"]), None


def _over_kinds(array: xr.DataArray) -> xr.DataArray:
    kinds = [kind for kind in PARTITION if kind in array[axes.CATEGORY].values]
    return array.sel({axes.CATEGORY: kinds}).sum(axes.CATEGORY, min_count=1)


SIGNALS = {
    "norm": Signal("Σ_j ‖α f(x_j)‖, what the head moves", _norm),
    "output_length": Signal("‖Σ_j α f(x_j)‖, the length of the head's output (norms:contribution=true)", _length),
}
