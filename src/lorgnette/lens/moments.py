"""Means over texts with their standard errors: the only thing that averages."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Shaped
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.lens.parts import Part
from lorgnette.lens.places import Labels, Places
from lorgnette.lens.states import zeros

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens
    from lorgnette.lens.pairs import Pairs

T = TypeVar("T")
By = Literal["text", "token"]
"""What every mean is over: texts, each with the same weight, or all tokens pooled."""

PIVOT, COUNT, WEIGHT, TOTAL = range(4)
"""The first rows of a state; with d = m − pivot they are: pivot, n, Σ w, Σ w m, Σ w d, Σ w², Σ w² d, Σ w² d²."""

MOST = 2**22
"""How many values are added to a state at a time."""
_Held = tuple[Site | tuple[Site, ...] | None, dict[str, tuple[Tensor, Tensor]]]
"""Values and weights by variable, of one site, of several, or of the corpus."""
_EVERY = slice(None)
_ROUNDING = 4 * torch.finfo(torch.float64).eps
"""The relative difference below which values count as equal."""


class Moments(Part["_Held"]):
    """Means over texts, with standard errors, of named variables with named axes.

    Each text t has a value m_t with a weight w_t: 1 (mean over texts), or its number of queries (`by="token"`).

        mean = Σ w m / Σ w        se² = n/(n−1) · Σ w² (m − mean)² / (Σ w)²

    which for equal weights is the usual standard error of a mean, and else the linearised one of a ratio. Texts are
    the clusters: tokens of one text are not independent.

        moments = Moments(self, ("entropy", "peak"))            # [stack layer head]
        masses = Moments(self, "mass", {axes.CATEGORY: KINDS})  # [stack layer head category]
        loss = Moments(self, "loss", at="corpus")               # one number for the corpus
        masses.add(call.site, mass=(values, weights))           # [text head category], weights broadcast
        masses.arrays()                                         # mass, mass_se, mass_count, labelled

    `at`: every "head", every "layer", the "corpus", or your own `Places`. The state holds eight numbers a cell
    in float64, on the device of the model. The spread is summed from differences with a pivot, the first value of the
    cell, so that one of 1e-12 of the mean is still seen; states of different pivots merge, because the sums for one
    pivot give those for any other.

    >>> from lorgnette.lens import Lens, Moments
    >>> class Length(Lens):
    ...     name = "length"
    ...     reads = frozenset({"tokens"})
    ...     def allocate(self, subject):
    ...         self.moments = Moments(self, "tokens", at="corpus")
    ...     def finish(self, batch, outputs):
    ...         length = batch.source.mask.sum(-1).float()
    ...         self.moments.add(tokens=(length, torch.ones_like(length)))
    ...     def compute(self):
    ...         return self.result(self.moments.arrays())
    >>> data = lo.look(subject, texts, Length(), progress=False)["length"].data
    >>> sorted(data), int(data["tokens_count"])
    (['tokens', 'tokens_count', 'tokens_se'], 2)
    """

    def __init__(
        self,
        lens: "Lens",
        variables: str | Sequence[str],
        axes: Mapping[str, Sequence[str | int | float]] | None = None,
        *,
        at: "str | Places" = "head",
        state: str | None = None,
    ) -> None:
        super().__init__(lens)
        self.variables = (variables,) if isinstance(variables, str) else tuple(variables)
        self.state: str = state or f"{self.variables[0]}_totals"
        self.axes: dict[str, Labels] = {axis: list(labels) for axis, labels in (axes or {}).items()}
        named: dict[str, Places | None] = {"head": lens.by_head, "layer": lens.by_layer, "corpus": None}
        self.places: Places | None = at if isinstance(at, Places) else named[at]
        lead = () if self.places is None else self.places.shape
        sizes = [len(labels or ()) for labels in self.axes.values()]
        shape = (len(self.variables), *lead, *sizes)
        lens.state(self.state, zeros(8, *shape), merged, on_device=True, in_place=False)
        self.held: list[_Held] = []
        self.pairs: list[Pairs] = []
        if lens.per_text is not None:
            lens.per_text.join(self, shape)

    def add(
        self, site: Site | None = None, rows: Sequence[int] | None = None, /, **values: tuple[Tensor, Tensor]
    ) -> None:
        """Add the values of some texts, (value, weight) by variable: [text (head) *axes]; weight 0 means no value.

        A weight broadcasts to its value. A site may have fewer heads than the widest. `rows` says which texts of the
        batch these are, if they are not all. The values are only held, which waits for nothing; `commit` takes those of
        all sites into the state together.
        """
        assert (site is None) == (self.places is None), "moments by site need one, others have none"
        held = {name: (value.detach(), weight.detach()) for name, (value, weight) in values.items()}
        self.held.append((site, held))
        self._keep(site, rows, held)

    def add_sites(self, sites: Sequence[Site], /, **values: tuple[Tensor, Tensor]) -> None:
        """The same for several sites at once, of the same texts: [site text (head) *axes]; each site once."""
        held = {name: (value.detach(), weight.detach()) for name, (value, weight) in values.items()}
        self.held.append((tuple(sites), held))
        for number, site in enumerate(sites if self.lens.per_text is not None else ()):
            one = {name: (v[number], w.expand(v.shape)[number]) for name, (v, w) in held.items()}
            self._keep(site, None, one)

    def _keep(self, site: Site | None, rows: Sequence[int] | None, values: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Pass the numbers of each text to `PerText`, if they are kept."""
        if self.lens.per_text is None:
            return
        for name, (value, weight) in values.items():
            where: tuple[int | slice, ...] = ()
            if self.places is not None and site is not None:
                index = self.places.index(site)
                where = (index,) if self.places.heads is None else (index, slice(0, value.shape[1]))
            pair = value.double(), weight.expand(value.shape).double()
            self.lens.per_text.add(self, self.variables.index(name), where, *pair, rows)

    def commit(self) -> None:
        for each in self.pairs:
            each.take(self.held)
        super().commit()

    def kind_of(self, item: "_Held") -> Hashable:
        """The variables and the shape, and the sites if values were added for several at once."""
        site, values = item
        rows = tuple(sorted(self.variables.index(name) for name in values))
        return site if isinstance(site, tuple) else rows, rows, next(iter(values.values()))[0].shape[1:]

    def take(self, items: "Sequence[_Held]") -> None:
        """Add values to the state: concatenate those of each site, then add sites with equally many texts together."""
        rows = sorted(self.variables.index(name) for name in items[0][1])
        by_site: dict[Site | None, list[tuple[Tensor, Tensor]]] = {}
        for site, values in items:
            pairs = [values[self.variables[row]] for row in rows]
            if isinstance(site, tuple):
                self._take_sites(rows, site, pairs)
            else:
                by_site.setdefault(site, []).append(self._stacked(pairs))
        by_texts: dict[int, dict[Site | None, tuple[Tensor, Tensor]]] = {}
        for site, stacked in by_site.items():
            value, weight = (torch.cat(parts) for parts in zip(*stacked, strict=True))
            by_texts.setdefault(len(value), {})[site] = (value, weight)
        for some in by_texts.values():
            for names in _batched(some, max(1, MOST // max(1, next(iter(some.values()))[0].numel()))):
                self._take(rows, [(name, *some[name]) for name in names])

    def _stacked(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """[text variable (head) *axes], on the device of the state."""
        device = getattr(self.lens, self.state).device
        value = torch.stack([value.to(device) for value, _ in pairs], 1)
        return value, torch.stack([weight.to(device).expand(value.shape) for value, weight in pairs], 1)

    def _take_sites(self, rows: list[int], sites: Sequence[Site], pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Values and weights [site text (head) *axes] of some variables, so many sites at a time."""
        step = max(1, MOST // max(1, len(rows) * pairs[0][0][0].numel()))
        for start in range(0, len(sites), step):
            some = slice(start, start + step)
            parts = [(value[some], weight.expand(value.shape)[some]) for value, weight in pairs]
            value, weight = self._stacked(parts)  # [site variable text …]
            self._put(rows, sites[some], value.transpose(0, 2), weight.transpose(0, 2))

    def _take(self, rows: list[int], sites: Sequence[tuple[Site | None, Tensor, Tensor]]) -> None:
        """Values and weights of some variables at some sites, of as many texts at each."""
        names, values, weights = zip(*sites, strict=True)
        if self.places is None:
            self._put(rows, names, values[0], weights[0])
        else:
            self._put(rows, names, torch.stack(values, 2), torch.stack(weights, 2))

    def _put(self, rows: list[int], sites: Sequence[Site | None], value: Tensor, weight: Tensor) -> None:
        """[text variable (site) (head) *axes]."""
        state: Tensor = getattr(self.lens, self.state)
        axes = [rows]
        if self.places is not None:
            axes.append([self.places.index(site) for site in sites if site is not None])
            if self.places.heads is not None:
                axes.append(list(range(value.shape[3])))
        value, weight = value.double(), weight.double()
        if all(numbers == list(range(size)) for numbers, size in zip(axes, state.shape[1:], strict=False)):
            setattr(self.lens, self.state, _added(state, value, weight))
            return
        where = [torch.from_numpy(numbers).to(state.device) for numbers in np.ix_(*axes)]
        place: tuple[slice | Tensor, ...] = (_EVERY, *where)
        new = state.clone()  # replaced, not changed in place: whoever holds the old tensor can restore it
        new[place] = _added(state[place], value, weight)
        setattr(self.lens, self.state, new)

    def arrays(self) -> dict[str, xr.DataArray]:
        """`name`, `name_se` and `name_count` of every variable, on the places and the further axes, labelled."""
        return {str(name): array for name, array in xr.Dataset(self.cells(), self.labels()).data_vars.items()}

    def cells(self) -> dict[str, xr.Variable]:
        """The numbers without labels, which take time to put on each; hand `labels` to `Lens.result` once."""
        return {name: xr.Variable(self.dims, values) for name, values in self.values().items()}

    def values(self) -> dict[str, Shaped[np.ndarray, "*cell"]]:
        """The values as plain numbers."""
        laid_out = torch.stack(statistics(self.sums())).numpy()  # [statistic variable …]: laid out at once
        if self.places is not None:
            laid_out = self.places.laid_out(laid_out, lead=2)
        means, errors, counts = laid_out
        whole = np.nan_to_num(counts).astype("int64")
        out: dict[str, np.ndarray] = {}
        for number, name in enumerate(self.variables):  # "...": a number of the corpus is an array too
            out |= {name: means[number, ...], f"{name}_se": errors[number, ...], f"{name}_count": whole[number, ...]}
        return out

    @property
    def dims(self) -> tuple[str, ...]:
        return (*(() if self.places is None else self.places.dims), *self.axes)

    def labels(self) -> dict[str, Labels]:
        """The labels of the axes of the arrays that `cells` returns."""
        return dict(self.axes) if self.places is None else self.places.labels(self.axes)

    def weights(self) -> dict[str, xr.DataArray]:
        """Σ w of every variable: how many queries a share is over, say."""
        sums = zip(self.variables, self.sums()[WEIGHT], strict=True)
        return {name: self.laid_out(weight).fillna(0) for name, weight in sums}

    def sums(self) -> Float[Tensor, "sum variable *cell"]:
        self.commit()
        return getattr(self.lens, self.state).cpu()

    def laid_out(self, cells: Float[Tensor, "*cell"], more: Mapping[str, Labels] | None = None) -> xr.DataArray:
        """Cells with the names of their axes; `more` names axes behind them."""
        named = {**self.axes, **(more or {})}
        if self.places is not None:
            return self.places.grid(cells, named)
        known = {axis: labels for axis, labels in named.items() if labels is not None}
        return xr.DataArray(cells.double().numpy(), dims=tuple(named), coords=known)


def _batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


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


def statistics(sums: Float[Tensor, "sum *cell"]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard error (NaN below two texts) and number of texts."""
    _, n, w, wm, wd, ww, wwd, wwdd = sums
    mean, off = wm / w, wd / w
    spread = wwdd - 2 * off * wwd + off**2 * ww
    spread = torch.where(spread > (_ROUNDING * mean) ** 2 * ww, spread, 0.0)  # equal values leave nothing but rounding
    error = torch.where(n > 1, (n / (n - 1) * spread).sqrt() / w, torch.nan)
    return mean, error, n
