"""Signals: one number for every head that may say how much the model needs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.results import Result

SIGNALS_OF = ("weights", "norms", "relevance", "importance")
"""Lenses whose signals are used by default."""
Values = tuple[xr.DataArray, xr.DataArray | None]
"""A number for every head, and its standard error over texts where there is one."""


@dataclass(frozen=True)
class Signal:
    """What a lens declares in `signals`: `agreement` compares it with others, `removal` removes heads by it.

    `read` takes the data of a result; KeyError there means that this result does not have the signal. The larger, the
    more important; `signed` says that heads with large negative values matter too, so that their size ranks them.
    """

    description: str
    read: Callable[[xr.Dataset], Values]
    signed: bool = False


def variable(name: str, select: Mapping[str, str | float] | None = None) -> Callable[[xr.Dataset], Values]:
    """Reads a variable of a result, at one label of some axes, with its standard error if the result has it."""

    def read(data: xr.Dataset) -> Values:
        value = data[name].sel(select or {}, drop=True)
        error = f"{name}_se"
        return value, data[error].sel(select or {}, drop=True) if error in data else None

    return read


def opposite(read: Callable[[xr.Dataset], Values]) -> Callable[[xr.Dataset], Values]:
    """1 − the value: the head matters where the value is small."""

    def turned(data: xr.Dataset) -> Values:
        value, error = read(data)
        return 1 - value, error

    return turned


@dataclass(frozen=True)
class HeadValues:
    """A signal as some result has it."""

    signal: Signal
    value: xr.DataArray
    error: xr.DataArray | None

    @property
    def size(self) -> xr.DataArray:
        """The signal by which heads are ranked when some are removed."""
        return abs(self.value) if self.signal.signed else self.value


def signals_in(results: Mapping[str, Result]) -> dict[str, HeadValues]:
    """Every signal that these results hold, in the order of the registered lenses."""
    from lorgnette.lens import registered

    by_lens = {result.lens: result.data for result in results.values()}
    out = {}
    for lens in (name for name in registered() if name in by_lens):
        for name, signal in signals_of(lens).items():
            try:
                value, error = signal.read(by_lens[lens])
            except KeyError:
                continue
            if bool(value.notnull().any()):
                out[name] = HeadValues(signal, value, error)
    return out


def signals_of(lens: str) -> Mapping[str, Signal]:
    """The signals that a lens declares."""
    from lorgnette.lens import find

    return find(lens).signals


def in_stack(signals: Mapping[str, HeadValues], stack: str) -> dict[str, HeadValues]:
    """The signals that have a number for some head of this stack (copying has none for cross-attention)."""
    return {
        name: one
        for name, one in signals.items()
        if stack in one.value[axes.STACK].values and bool(one.value.sel({axes.STACK: stack}).notnull().any())
    }


def table(
    signals: Mapping[str, HeadValues], stack: str, *, size: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[signal head] of the heads that all signals know, [2 head] their layer and head, and the standard errors.

    Every signal must have numbers in this stack: see `in_stack`.
    """
    dims = (axes.LAYER, axes.HEAD)
    values = [(s.size if size else s.value).sel({axes.STACK: stack}).transpose(*dims).values for s in signals.values()]
    errors = [np.full(v.shape, np.nan) if s.error is None else s.error.sel({axes.STACK: stack}).transpose(*dims).values
              for v, s in zip(values, signals.values(), strict=True)]  # fmt: skip
    if len({value.shape for value in values}) > 1:
        raise UserError("These results are from different models: their layers and heads differ.")
    known = np.isfinite(values).all(0)
    places = np.argwhere(known).T
    return np.array([v[known] for v in values]), places, np.array([e[known] for e in errors])
