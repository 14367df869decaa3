"""The numbers of a result, chosen by name and label, as records for a chart and as rows for a table."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lorgnette.axes import CATEGORY, HEAD, LAYER, PER_HEAD, STACK, Selected
from lorgnette.errors import UserError, near
from lorgnette.results import Result
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

PARTITION = ("cls", "sep", "period_comma", "other")
"""The kinds of token that share out all tokens: only these may be stacked to a whole."""

KINDS = {
    "cls": "opening token ([CLS])",
    "sep": "closing token ([SEP])",
    "period_comma": "period or comma",
    "punctuation": "punctuation",
    "other": "other tokens",
    "first": "first token",
    "last": "last token",
    "self": "the token itself",
    "previous": "previous token",
    "next": "next token",
    "broad": "broad",
    "attn_w": "weights",
    "attn_n": "norms",
    "attn_res_w": "weights, residual",
    "attn_res_n": "norms, residual",
    "attn_res_ln_n": "norms, residual, LayerNorm",
    "to_head": "dependent → head",
    "to_dependent": "head → dependent",
    "read_by_head": "attended to most by its head",
}
VARIABLES = {
    "accuracy": "accuracy",
    "accuracy_change": "change in accuracy",
    "activation_ratio": "largest activation over a typical one",
    "aer": "alignment error rate",
    "arrives": "share of the norm",
    "by_gradient": "effect on the logit, by gradient",
    "cone_widest": "width of the cone (radians)",
    "confidence": "confidence (mean maximum weight)",
    "contribution_share": "share of the length of the output",
    "copied": "share of tokens copied",
    "direct": "direct effect on the logit",
    "distance": "distance from the uniform average",
    "effect": "share of the difference restored",
    "effective_rank": "effective rank",
    "entropy": "entropy (nats)",
    "entropy_normalised": "normalised entropy",
    "excess": "score minus control",
    "expansion": "expansion ‖f(x)‖ / ‖x‖",
    "f_cv": "coefficient of variation of ‖f(x)‖",
    "f_norm": "norm ‖f(x)‖",
    "far_mass": "attention beyond the window",
    "feed_forward": "direct effect on the logit",
    "gradient": "gradient magnitude (mean |∂loss/∂α|)",
    "head_agreement": "agreement with the model's own prediction",
    "head_contrast": "logit added to the correct token",
    "layer_aer": "alignment error rate",
    "layer_share": "share of the relevance",
    "layer_uas": "unlabelled attachment score",
    "local_mass": "attention to the window",
    "loss_change": "change in loss",
    "mass": "share of attention",
    "mixing": "mixing ratio",
    "norm": "norm ‖αf(x)‖",
    "norm_share": "share of the norm ‖αf(x)‖",
    "patched": "logit difference",
    "positive": "positive eigenvalue share",
    "rate": "sink rate",
    "reciprocal_rank": "reciprocal rank of the correct token",
    "relevance": "share of its layer's relevance",
    "selectivity": "selectivity (accuracy − control)",
    "retrieval": "share of tokens read before they come",
    "retrieval_control": "the same by chance",
    "retrieval_excess": "retrieval score minus chance",
    "self_similarity": "mean cosine of a word's occurrences",
    "sensitivity": "sensitivity (mean |∂loss/∂gate|)",
    "share": "share of the input",
    "shared_change": "change in loss with the key head limited",
    "sim": "mean cosine",
    "sim_centred": "mean cosine, centred",
    "sink_mass": "attention to the sinks",
    "spearman": "Spearman's ρ",
    "state_effective_rank": "effective rank",
    "state_isoscore": "IsoScore",
    "state_sim": "mean cosine",
    "to_logits": "attribution of what the head writes to the output",
    "total": "total effect on the logit",
    "uas": "unlabelled attachment score",
    "used": "share of the cone",
}
"""What axes and legends call the variables that are drawn."""
BESIDE = ("_se", "_count", "_low", "_high", "_q", "_pairs")
"""Ends of names that belong to a mean and are not shown by themselves."""
_OF_ALL = ("count", "q")
"""What belongs to all means of a result: the number of texts, and how sure its labels are."""


def chosen(result: Result, variable: str, selection: Mapping[str, Selected]) -> xr.DataArray:
    """One variable, cut down to the selected labels (a label, or several); an axis with one label left stays."""
    names = [str(name) for name in result.data.data_vars]
    if variable not in names:
        raise UserError(
            f"The lens {result.lens!r} has no variable {variable!r}.{near(variable, names)} It has {', '.join(names)}."
        )
    array = result.data[variable]
    for axis, wanted in selection.items():
        if axis not in array.dims:
            axes = ", ".join(map(str, array.dims))
            raise UserError(f"{variable!r} has no axis {axis!r}; it has {axes or 'none'}.")
        labels = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Sequence) else list(wanted)
        values = array[axis].values.tolist()
        for label in labels:
            if label not in values:
                raise UserError(f"{variable!r} has no {axis} {label!r}; it has {', '.join(map(str, values))}.")
        array = array.sel({axis: labels})
    return array


def beside(result: Result, array: xr.DataArray, tail: str) -> xr.DataArray | None:
    """The `_se` or `_count` of a mean, with the same selection; None if there is none."""
    name = f"{array.name}{tail}"
    if name not in result.data.data_vars or result.data[name].dims != result.data[str(array.name)].dims:
        return None
    return result.data[name].sel({dim: array[dim].values for dim in array.dims if dim in array.coords})


def is_measure(array: xr.DataArray) -> bool:
    """Whether a variable is a number of its own, not the error, count, bound or q of another."""
    return array.dtype.kind in "iuf" and not str(array.name).endswith(BESIDE) and array.name not in _OF_ALL


def shown(result: Result) -> list[str]:
    """Variables with a number for every layer (and head), not all zero: what a chart by default can show."""
    names = []
    for name, array in result.data.data_vars.items():
        if is_measure(array) and LAYER in array.dims and bool((array.notnull() & (array != 0)).any()):
            names.append(str(name))
    return names


def said(label: object) -> str:
    """A label in words; one that is not ours is left as it is."""
    return KINDS.get(str(label), str(label))


def titled(name: str) -> str:
    """A variable in words, as axes and tables call it; one that is not ours by its name."""
    return VARIABLES.get(name, name.replace("_", " "))


def number(value: float) -> str:
    """Three digits after the point, or three that count where that would say nothing."""
    if value == 0 or 0.001 <= abs(value) < 10_000:
        return f"{value:.3f}"
    return f"{value:.3g}"


def weight(value: float) -> str:
    """An attention weight: two digits after the point, or two that count where it is small; "0" is exactly zero.

    >>> [weight(value) for value in (0.5, 0.034, 0.00071, 0.0)]
    ['0.50', '0.034', '0.00071', '0']
    """
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.2g}"


def panels(array: xr.DataArray) -> list[tuple[str, xr.DataArray]]:
    """The array as [layer head] or [layer] slices, one for each combination of its other labels."""
    others = [dim for dim in array.dims if dim not in (LAYER, HEAD)]
    several = [dim for dim in others if array.sizes[dim] > 1]
    out = []
    for place in product(*(range(array.sizes[dim]) for dim in others)):
        at = dict(zip(others, place, strict=True))
        piece = array.isel(at)
        names = [said(piece[dim].item()) if dim in piece.coords else f"{dim} {at[dim] + 1}" for dim in several]
        if bool(piece.notnull().any()):
            out.append((" · ".join(names), piece))
    return out


def records(result: Result, array: xr.DataArray) -> list[Json]:
    """A record for each number: layer, head, panel, value, and a full label."""
    spread = beside(result, array, "_se")
    out = []
    for panel, piece in panels(array):
        errors = None
        if spread is not None and all(dim in spread.coords for dim in spread.dims):
            errors = spread.sel({dim: piece[dim].item() for dim in array.dims if dim not in piece.dims})
        layers, heads = piece[LAYER].values, piece[HEAD].values if HEAD in piece.dims else [None]
        grid = piece.transpose(LAYER, ...).values.astype(float).reshape(len(layers), len(heads))
        error = errors.transpose(LAYER, ...).values.reshape(grid.shape) if errors is not None else None
        for (i, layer), (j, head) in product(enumerate(layers), enumerate(heads)):
            if np.isnan(grid[i, j]):
                continue
            record: Json = {"layer": int(layer), "panel": panel, "value": float(grid[i, j])}
            where = f"layer {layer}" if head is None else f"layer {layer}, head {head}"
            more = "" if error is None or np.isnan(error[i, j]) else f" ± {number(error[i, j])}"
            record["label"] = f"{f'{panel}, ' if panel else ''}{where}: {number(grid[i, j])}{more}"
            out.append(record if head is None else {**record, "head": int(head)})
    return out


def table(array: xr.DataArray) -> "pd.DataFrame":
    """A row per head (or layer), a column per remaining label."""
    frame = array.to_dataframe(name="value").reset_index()
    rows = [dim for dim in PER_HEAD if dim in array.dims]
    others = [dim for dim in array.dims if dim not in rows]
    if STACK in rows and array.sizes[STACK] == 1:
        rows.remove(STACK)
    if not others:
        return frame[[*rows, "value"]].dropna().rename(columns={"value": titled(str(array.name))})
    wide = frame.pivot_table(index=rows, columns=others, values="value", sort=False, dropna=True)
    wide.columns = [" · ".join(map(said, label if isinstance(label, tuple) else (label,))) for label in wide.columns]
    return wide.reset_index()


def partition(array: xr.DataArray) -> xr.DataArray:
    """Only the kinds of token that share out all tokens."""
    categories = [kind for kind in PARTITION if kind in array[CATEGORY].values]
    return array.sel({CATEGORY: categories})
