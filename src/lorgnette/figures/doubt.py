"""Uncertainty of a ranking: the largest of several means over texts, and which others do not differ from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from lorgnette.axes import HEAD, LAYER, Selected
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery

_NAMED = 3


@dataclass(frozen=True)
class Extreme:
    """The largest (or smallest) of several means: its place, its value, half of its 95 % interval, and its ties.

    `tied` are the places of those that do not differ from it significantly; `comparable` is False where no standard
    errors are known, `paired` where the sum of two errors took the place of a paired test, which finds less.
    """

    place: int
    value: float
    half: float
    tied: tuple[int, ...]
    comparable: bool
    paired: bool = True

    def beside(self, names: Sequence[object], relation: str = "above") -> str:
        """An ending for a sentence that names it: ", significantly above all others"."""
        if not self.comparable:
            return ""
        if not self.tied:
            return f", significantly {relation} all others"
        named = ", ".join(str(names[place]) for place in self.tied[:_NAMED])
        more = len(self.tied) - _NAMED
        return (
            f", not significantly {relation} {named}"
            + (f" and {more} more" if more > 0 else "")
            + ("" if self.paired else " (not paired)")
        )


def extreme(means: Estimate, *, q: Float[np.ndarray, " item"] | None = None, largest: bool = True) -> Extreme:
    """The extreme of some means over the same texts (one axis), with a test against each of the others.

    `q` says how sure it is that each differs from the extreme, where the lens has paired them (`lens.pairs`); it is
    missing for the extreme itself. If it has a value there, the lens tested against another head, which the sentence
    leaves out, and `q` says nothing about this one. Without `q`,

        t = |m_best − m_i| / (se_best + se_i)

    as means over the same texts may be correlated in any way, and the sum of both standard errors is the largest that
    their difference can have: the test errs on the side of "cannot be told". p is corrected over the others
    (Benjamini–Hochberg), at a false discovery rate of 5 %.
    """
    values, errors, counts = (np.asarray(part, dtype=float) for part in (means.value, means.se, means.count))
    best = int(np.nanargmax(values) if largest else np.nanargmin(values))
    top = Estimate(values[best], errors[best], counts[best])
    others = np.isfinite(values) & (np.arange(len(values)) != best)
    comparable = bool(np.isfinite(errors[best]) and np.isfinite(errors[others]).all() and others.any())
    paired = q is not None and not np.isfinite(q[best])
    if q is None or not paired:
        q = false_discovery(np.where(others, Estimate(values, errors, counts).minus_correlated(top).p, np.nan))
    tied = tuple(int(place) for place in np.flatnonzero(others) if not q[place] < LEVEL) if comparable else ()
    return Extreme(best, float(values[best]), float(top.half), tied, comparable, paired)


def extreme_of(data: xr.Dataset, variable: str, axis: str, *, largest: bool = True) -> Extreme:
    """The extreme of a dataset's variable along one axis, with the standard errors and counts that belong to it."""
    name = f"{variable}_{'top' if largest else 'bottom'}_q"
    q = data[name].transpose(axis).values if name in data else None
    return extreme(Estimate.of(data.transpose(axis, ...), variable), q=q, largest=largest)


def layer_means(data: xr.Dataset, variable: str) -> xr.Dataset:
    """`value`, `value_se` and `value_count` by layer: means over heads; `value_top_q` and `_bottom_q` if known.

    The heads saw the same texts, so the standard error of their mean is taken to be the mean of theirs: the largest
    that it can be.
    """
    parts = {f"value{tail}": data[f"{variable}{tail}"] for tail in ("", "_se", "_count") if f"{variable}{tail}" in data}
    means = {name: part.mean(HEAD) if name != "value_count" else part.max(HEAD) for name, part in parts.items()}
    tails = [tail for tail in ("_top_q", "_bottom_q") if f"layer_{variable}{tail}" in data]
    means |= {f"value{tail}": data[f"layer_{variable}{tail}"] for tail in tails}
    return xr.Dataset(means).dropna(LAYER, subset=["value"])


def head_extreme(
    data: xr.Dataset, variable: str, select: Mapping[str, Selected] | None = None
) -> tuple[Extreme, list[str]]:
    """The largest of all heads, and the names of the heads in the order that its places mean."""
    means = Estimate.of(data, variable, select)
    parts = {"value": means.value, "se": means.se, "count": means.count}
    if (name := f"{variable}_top_q") in data:
        parts["q"] = data[name].sel({axis: label for axis, label in (select or {}).items() if axis in data[name].dims})
    flat = xr.Dataset(parts, {}).stack(cell=(LAYER, HEAD)).dropna("cell", subset=["value"])
    names = [f"{layer}.{head}" for layer, head in flat["cell"].values.tolist()]
    found = Estimate(flat["value"].values, flat["se"].values, flat["count"].values)
    return extreme(found, q=flat["q"].values if "q" in flat else None), names


def difference(data: xr.Dataset, name: str, select: Mapping[str, Selected], one: Estimate, other: Estimate) -> Estimate:
    """One number minus another of the same texts: variable `name` where the lens has paired them, else a bound."""
    return Estimate.of(data, name, select) if name in data else one.minus_correlated(other)


def significantly_above(means: Estimate, bound: "Estimate | float") -> int:
    """How many of these means lie above a bound, at a false discovery rate of 5 % over all of them."""
    return int((false_discovery(means.minus_correlated(bound).p_above) < LEVEL).sum())
