"""Means over texts with their standard errors: the only thing that averages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.lens.places import Labels, Places

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens

PIVOT, COUNT, WEIGHT, TOTAL = range(4)
"""The first rows of a state; with d = m − pivot they are: pivot, n, Σ w, Σ w m, Σ w d, Σ w², Σ w² d, Σ w² d²."""

_EVERY = slice(None)
_STATISTIC, _VARIABLE = "_statistic", "_variable"
_ROUNDING = 4 * torch.finfo(torch.float64).eps
"""What values differ by relatively without being different."""


class Moments:
    """Means over texts, with standard errors, of named variables with named axes.

    Each text t gives a value m_t with a weight w_t: 1 (mean over texts), or its number of queries (`by="token"`).

        mean = Σ w m / Σ w        se² = n/(n−1) · Σ w² (m − mean)² / (Σ w)²

    which for equal weights is the usual standard error of a mean, and else the linearised one of a ratio. Texts are
    the clusters: tokens of one text are not independent.

        moments = Moments(self, ("entropy", "peak"))            # [stack layer head]
        masses = Moments(self, "mass", {axes.CATEGORY: KINDS})  # [stack layer head category]
        loss = Moments(self, "loss", at="corpus")               # one number for the corpus
        masses.add(call.site, mass=(values, weights))           # [text head category], weights broadcast
        masses.arrays()                                         # mass, mass_se, mass_count, labelled

    `at`: every "head", every "layer", the "corpus", or `Places` of one's own. The state holds eight numbers a cell
    in float64, on the device of the model. The spread is summed from differences with a pivot, the first value of the
    cell, so that one of 1e-12 of the mean is still seen; states of different pivots merge, because the sums for one
    pivot give those for any other.
    """

    lens: "Lens"
    variables: tuple[str] | tuple[str, ...]

    def __init__(
        self,
        lens: "Lens",
        variables: str | Sequence[str],
        axes: Mapping[str, Sequence[str | int | float]] | None = None,
        *,
        at: "str | Places" = "head",
        state: str | None = None,
    ) -> None:
        self.lens, self.variables = lens, (variables,) if isinstance(variables, str) else tuple(variables)
        self.state: str = state or f"{self.variables[0]}_totals"
        self.axes: dict[str, Labels] = {axis: list(labels) for axis, labels in (axes or {}).items()}
        named: dict[str, Places | None] = {"head": lens.by_head, "layer": lens.by_layer, "corpus": None}
        self.places: Places | None = at if isinstance(at, Places) else named[at]
        lead = () if self.places is None else self.places.shape
        sizes = [len(labels or ()) for labels in self.axes.values()]
        shape = (len(self.variables), *lead, *sizes)
        lens.state(self.state, torch.zeros(8, *shape, dtype=torch.float64), merged, on_device=True)
        if lens.per_text is not None:
            lens.per_text.join(self, shape)

    def add(
        self, site: Site | None = None, rows: Sequence[int] | None = None, /, **values: tuple[Tensor, Tensor]
    ) -> None:
        """Add some texts' values, (value, weight) by variable: [text (head) *axes]; weight 0 means no such value.

        A weight broadcasts to its value. A site may have fewer heads than the widest. `rows` says which texts of the
        batch these are, if they are not all.
        """
        state: Tensor = getattr(self.lens, self.state)
        rows_of = sorted(self.variables.index(name) for name in values)
        pairs = [[part.detach().to(state.device).double() for part in values[self.variables[row]]] for row in rows_of]
        value = torch.stack([value for value, _ in pairs], 1)
        weight = torch.stack([weight.expand(value.shape) for value, weight in pairs], 1)
        place: tuple[Any, ...] = (_EVERY, rows_of if len(rows_of) < len(self.variables) else _EVERY)
        if self.places is not None:
            assert site is not None, "these moments are by site"
            place = (*place, self.places.index(site))
            if self.places.heads is not None:
                place = (*place, slice(0, value.shape[2]))
        state[place] = _added(state[place], value, weight)
        if self.lens.per_text is not None:
            for number, row in enumerate(rows_of):
                self.lens.per_text.add(self, row, place[2:], value[:, number], weight[:, number], rows)

    def arrays(self) -> dict[str, xr.DataArray]:
        """`name`, `name_se` and `name_count` of every variable, on the places and the further axes, labelled."""
        statistics = torch.stack(
            _statistics(self._sums()), -1
        )  # [variable … 3]: laid out at once, since labels are slow
        laid_out = self.laid_out(statistics.movedim(0, -1), {_STATISTIC: None, _VARIABLE: None})
        one = laid_out.isel({_STATISTIC: 0, _VARIABLE: 0}, drop=True)
        out: dict[str, xr.DataArray] = {}
        for number, name in enumerate(self.variables):
            mean, error, count = np.ascontiguousarray(np.moveaxis(laid_out.values[..., number], -1, 0))
            out |= {name: one.copy(False, mean), f"{name}_se": one.copy(False, error)}
            out[f"{name}_count"] = one.copy(False, np.nan_to_num(count).astype("int64"))
        return out

    def weights(self) -> dict[str, xr.DataArray]:
        """Σ w of every variable: how many queries a share is over, say."""
        sums = zip(self.variables, self._sums()[WEIGHT], strict=True)
        return {name: self.laid_out(weight).fillna(0) for name, weight in sums}

    def _sums(self) -> Float[Tensor, "sum variable *cell"]:
        return getattr(self.lens, self.state).cpu()

    def laid_out(self, cells: Float[Tensor, "*cell"], more: Mapping[str, Labels] | None = None) -> xr.DataArray:
        """Cells with the names of their axes; `more` names axes behind them."""
        named = {**self.axes, **(more or {})}
        if self.places is not None:
            return self.places.grid(cells, named)
        known = {axis: labels for axis, labels in named.items() if labels is not None}
        return xr.DataArray(cells.double().numpy(), dims=tuple(named), coords=known)


def merged(states: Iterable[Float[Tensor, "sum *cell"]]) -> Float[Tensor, "sum *cell"]:
    """The moments of all texts from those of some texts each."""
    first, *others = states
    for other in others:
        pivot = torch.where(first[COUNT] > 0, first[PIVOT], other[PIVOT])
        first = _about(first, pivot) + _about(other, pivot)
        first[PIVOT] = pivot
    return first


def _about(sums: Float[Tensor, "sum *cell"], pivot: Float[Tensor, "*cell"]) -> Float[Tensor, "sum *cell"]:
    """The same sums with another pivot; where there are none yet, zeros."""
    by = torch.where(sums[COUNT] > 0, sums[PIVOT] - pivot, 0.0)
    _, n, w, wm, wd, ww, wwd, wwdd = sums
    return torch.stack([pivot, n, w, wm, wd + by * w, ww, wwd + by * ww, wwdd + 2 * by * wwd + by**2 * ww])


def _added(
    sums: Float[Tensor, "sum *cell"], value: Float[Tensor, "text *cell"], weight: Float[Tensor, "text *cell"]
) -> Float[Tensor, "sum *cell"]:
    if not len(value):
        return sums
    has = weight > 0
    start = value.gather(0, has.to(torch.uint8).argmax(0, keepdim=True))[0]
    start = torch.where(has.any(0), start, 0.0)
    pivot = torch.where(sums[COUNT] > 0, sums[PIVOT], start)
    w = torch.where(has, weight, 0.0)
    wm = w * torch.where(has, value, 0.0)
    wd = w * torch.where(has, value - pivot, 0.0)
    batch = torch.stack([has.double(), w, wm, wd, w * w, w * wd, wd * wd]).sum(1)
    return torch.cat([pivot[None], sums[1:] + batch])


def _statistics(sums: Float[Tensor, "sum *cell"]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard error (NaN below two texts) and number of texts."""
    _, n, w, wm, wd, ww, wwd, wwdd = sums
    mean, off = wm / w, wd / w
    spread = wwdd - 2 * off * wwd + off**2 * ww
    spread = torch.where(spread > (_ROUNDING * mean) ** 2 * ww, spread, 0.0)  # equal values leave nothing but rounding
    error = torch.where(n > 1, (n / (n - 1) * spread).sqrt() / w, torch.nan)
    return mean, error, n
