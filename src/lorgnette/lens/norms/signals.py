"""What the variables of the lens `norms` mean, and what they say of a head as a whole."""

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


DESCRIPTIONS = {
    "weight": "Σ_j α_ij over the tokens j of a category, mean over queries",
    "norm": "Σ_j ‖α_ij f(x_j)‖ over the tokens j of a category, mean over queries",
    "norm_share": "share of the category in Σ_j ‖α_ij f(x_j)‖ over all tokens and queries of a text",
    "f_norm": "‖f(x_j)‖, mean over the tokens of a category",
    "f_mean": "‖f(x)‖, mean over all tokens of the corpus",
    "f_sd": "standard deviation of ‖f(x)‖ over all N tokens of the corpus (denominator N)",
    "f_cv": "coefficient of variation of ‖f(x)‖: sd / mean",
    "f_min": "smallest ‖f(x)‖",
    "f_max": "largest ‖f(x)‖",
    "all_heads_norm": "Σ_j ‖Σ_h α f(x_j)‖ over the tokens j of a category, mean over queries; with residual, with norm",
    "all_heads_share": "share of the category in the summed norms of all tokens of a text",
    "contribution": "Σ_j α_ij f(x_j)·y_i/‖y_i‖ over a category's tokens j, mean over queries; y_i = Σ_j α_ij f(x_j)",
    "contribution_share": "share of the category in Σ_i ‖y_i‖ of a text; negative: opposes the output",
    "all_heads_contribution": "the same for the sum over heads: y_i = Σ_h Σ_j α f(x_j), without b_O",
    "all_heads_contribution_share": "share of the category in Σ_i ‖y_i‖, for the sum over heads",
    "mixing": "‖Σ_{j≠i} term_j‖ / (‖Σ_{j≠i} term_j‖ + ‖term_i‖), mean over tokens i",
    "mixing_min": "smallest mixing ratio of any token",
    "mixing_max": "largest mixing ratio of any token",
    "expansion": "‖Σ_h f^h(x)‖ / ‖x‖, mean over tokens; x: the state in the residual stream",
    "spearman": "rank correlation of α_ij with ‖f(x_j)‖ over the pairs of a layer, all heads together",
    "spearman_all": "rank correlation of α_ij with ‖f(x_j)‖ over the pairs of all layers and heads",
}
