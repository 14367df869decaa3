"""An `xarray.Dataset` as JSON and back, exactly: dims, coordinates, attributes, types; missing numbers are null."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from lorgnette.errors import UserError
from lorgnette.types import Json

# Numbers whose Python form says all that they hold, so that JSON brings back the same bits.
_NUMBERS = "biuf"


def plain(value: Any, where: str) -> Any:
    """`value` in JSON's own types (tuples become lists, numpy scalars Python's), or a UserError."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UserError(f"{where} is {value}; attributes must be finite. Leave it out or use None.")
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise UserError(f"{where} is a {type(value).__name__}; only text, numbers, lists and dictionaries can be saved.")


def encode(data: xr.Dataset) -> Json:
    return {
        "sizes": {str(dim): int(size) for dim, size in sorted(data.sizes.items())},
        "attrs": plain(data.attrs, "attrs"),
        "coords": {str(name): _encode_variable(str(name), array.variable) for name, array in data.coords.items()},
        "variables": {str(name): _encode_variable(str(name), array.variable) for name, array in data.data_vars.items()},
    }


def decode(document: Json) -> xr.Dataset:
    sizes = document["sizes"]
    if not isinstance(document["attrs"], dict):
        raise ValueError("attributes without names")
    return xr.Dataset(
        {name: _decode_variable(entry, sizes) for name, entry in document["variables"].items()},
        {name: _decode_variable(entry, sizes) for name, entry in document["coords"].items()},
        document["attrs"],
    )


def _encode_variable(name: str, variable: xr.Variable) -> Json:
    values = np.asarray(variable.values)
    if values.dtype.kind in "OTU":
        texts = _nulled(values)
        if not all(cell is None or isinstance(cell, str) for cell in texts.ravel()):
            raise UserError(f"{name!r} holds objects that are not text; use numbers, booleans or text.")
        kind, nested = ("str" if values.dtype.kind == "U" else "object"), texts.tolist()
    elif values.dtype.kind in _NUMBERS and values.dtype.itemsize <= 8:
        kind = values.dtype.name
        nested = (_nulled(values) if values.dtype.kind == "f" else values).tolist()
    else:
        raise UserError(f"{name!r} has type {values.dtype}; use numbers, booleans or text.")
    attrs = plain(variable.attrs, f"{name}.attrs")
    return {"dims": [str(dim) for dim in variable.dims], "dtype": kind, "attrs": attrs, "values": nested}


def _nulled(values: np.ndarray) -> np.ndarray:
    """None in place of NaN, the only value that differs from itself; xarray uses it for missing text too."""
    cells = values.astype(object)
    cells[np.asarray(cells != cells)] = None
    return cells


def _decode_variable(entry: Json, sizes: Mapping[str, int]) -> xr.Variable:
    """The variable as it was written: numbers that do not lie as `dims` and `sizes` say are refused, not rearranged."""
    kind = entry["dtype"]
    dtype = np.dtype({"str": "U", "object": "O"}.get(kind, kind))
    if kind not in ("str", "object") and (dtype.kind not in _NUMBERS or dtype.name != kind):
        raise ValueError(f"values of type {kind!r}")
    shape = tuple(sizes[dim] for dim in entry["dims"])
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"sizes {shape}")
    values = np.array(entry["values"], dtype=dtype)
    if 0 in shape and values.size == 0:
        values = values.reshape(shape)
    if values.shape != shape:
        raise ValueError(
            f"numbers of shape {values.shape} where {dict(zip(entry['dims'], shape, strict=True))} is said"
        )
    return xr.Variable(entry["dims"], values, entry["attrs"])
