"""How sure a comparison is: the largest of some means over texts, and which of the others cannot be told from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped

from lorgnette.axes import HEAD, LAYER
from lorgnette.statistics.intervals import t_quantile
from lorgnette.statistics.significance import LEVEL, false_discovery, two_sided_p

_NAMED = 3


@dataclass(frozen=True)
class Extreme:
    """The largest (or smallest) of several means: its place, its value, half of its 95 % interval, and its ties.

    `tied` are the places of those that do not differ from it significantly; `comparable` is False where no standard
    errors are known.
    """

    place: int
    value: float
    half: float
    tied: tuple[int, ...]
    comparable: bool

    def beside(self, names: Sequence[object], relation: str = "above") -> str:
        """What to add to a sentence that names it: ", significantly above all others"."""
        if not self.comparable:
            return ""
        if not self.tied:
            return f", significantly {relation} all others"
        named = ", ".join(str(names[place]) for place in self.tied[:_NAMED])
        more = len(self.tied) - _NAMED
        return f", not significantly {relation} {named}" + (f" and {more} more" if more > 0 else "")


def extreme(
    values: Float[np.ndarray, " item"],
    errors: Float[np.ndarray, " item"],
    counts: Shaped[np.ndarray, " item"] | None = None,
    *,
    largest: bool = True,
) -> Extreme:
    """The extreme of some means over the same texts, with a test against each of the others.

        t = |m_best − m_i| / (se_best + se_i)

    Means over the same texts may be correlated in any way; the sum of both standard errors is the largest that their
    difference can have, so that the test errs on the side of "cannot be told". p is corrected over the others
    (Benjamini–Hochberg), at a false discovery rate of 5 %.
    """
    values, errors = np.asarray(values, dtype=float), np.asarray(errors, dtype=float)
    best = int(np.nanargmax(values) if largest else np.nanargmin(values))
    degrees = None if counts is None else np.maximum(np.minimum(counts, np.asarray(counts)[best]) - 1.0, 1.0)
    p = two_sided_p(values - values[best], errors + errors[best], degrees)
    others = np.isfinite(values) & (np.arange(len(values)) != best)
    comparable = bool(np.isfinite(errors[best]) and np.isfinite(errors[others]).all() and others.any())
    adjusted = false_discovery(np.where(others, p, np.nan))
    tied = tuple(int(place) for place in np.flatnonzero(others) if not adjusted[place] < LEVEL) if comparable else ()
    t = 1.96 if degrees is None else float(t_quantile(np.asarray(degrees[best])))
    return Extreme(best, float(values[best]), t * float(errors[best]), tied, comparable)


def difference(
    values: tuple[float, float],
    errors: tuple[float, float],
    count: int | float | None = None,
    *,
    what: str = "difference",
) -> str:
    """What to add behind two means over the same `count` texts: "; the difference is significant", or that it is not.

    The error of the difference is taken as in `extreme`. Nothing is said where an error is unknown.
    """
    degrees = None if count is None else np.asarray(max(count - 1.0, 1.0))
    p = float(two_sided_p(np.asarray(values[0] - values[1]), np.asarray(sum(errors)), degrees))
    return "" if p != p else f"; the {what} is {'' if p < LEVEL else 'not '}significant"


def extreme_of(data: xr.Dataset, variable: str, axis: str, *, largest: bool = True) -> Extreme:
    """The same of a variable of a dataset along one axis, with the standard errors and counts beside it."""
    values = data[variable].transpose(axis).values
    _, error, count = _with_error(variable)
    errors = data[error].transpose(axis).values if error in data else np.full(len(values), np.nan)
    return extreme(values, errors, data[count].transpose(axis).values if count in data else None, largest=largest)


def layer_means(data: xr.Dataset, variable: str) -> xr.Dataset:
    """`value`, `value_se` and `value_count` by layer: means over heads.

    The heads saw the same texts, so the standard error of their mean is taken to be the mean of theirs: the largest
    that it can be.
    """
    names = dict(zip(_with_error(variable), _with_error("value"), strict=True))
    parts = {new: data[old] for old, new in names.items() if old in data}
    means = {name: part.mean(HEAD) if name != "value_count" else part.max(HEAD) for name, part in parts.items()}
    return xr.Dataset(means).dropna(LAYER, subset=["value"])


def head_extreme(data: xr.Dataset, variable: str, select: Mapping[str, str] | None = None) -> tuple[Extreme, list[str]]:
    """The largest of all heads, and the names of the heads in the order that its places mean."""
    parts = {name: data[name].sel(select or {}) for name in _with_error(variable) if name in data}
    flat = xr.Dataset(parts).stack(cell=(LAYER, HEAD)).dropna("cell", subset=[variable])
    names = [f"{layer}.{head}" for layer, head in flat["cell"].values.tolist()]
    missing = np.full(len(names), np.nan)
    _, error, count = _with_error(variable)
    errors = flat[error].values if error in flat else missing
    counts = flat[count].values if count in flat else None
    return extreme(flat[variable].values, errors, counts), names


def significantly_above(
    values: xr.DataArray, errors: xr.DataArray, counts: xr.DataArray, bound: float, bound_error: float = 0.0
) -> int:
    """How many of these means lie above a bound, at a false discovery rate of 5 % over all of them."""
    from lorgnette.statistics.significance import greater_p

    degrees = np.maximum(counts.values - 1.0, 1.0)
    p = greater_p(values.values - bound, errors.values + bound_error, degrees)
    return int((false_discovery(p) < LEVEL).sum())


def _with_error(variable: str) -> tuple[str, str, str]:
    return variable, f"{variable}_se", f"{variable}_count"
