"""Which of many means over the same texts differ: cross-moments of all pairs of cells, in fixed memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.axes import HEAD
from lorgnette.lens.moments import COUNT, TOTAL, WEIGHT, Moments
from lorgnette.lens.places import Places
from lorgnette.lens.states import zeros
from lorgnette.statistics.estimate import Estimate, error_of_sum, false_discovery_among

Held = Sequence[tuple[Site | tuple[Site, ...] | None, Mapping[str, tuple[Tensor, Tensor]]]]
Label = str | int | float
MOST_CELLS = 1024
"""Heads of a model beyond which nothing is paired: their products would take more than 34 MB for each variable, 134 MB
for 2,048 heads, in memory as well as in every shard and saved state (`weights` has two such variables, `importance` one
for each kind of ablation). The report then uses the sum of two errors, the largest that the error of a difference can
be, and says that it is not paired."""
MOST_CONTRASTED = 2048
"""The same where labels of an axis are cells of every head, for `contrasts`: at most 134 MB."""
_ROWS = 32
"""Cells that are compared with all others at a time."""
_ROUNDING = 64 * np.finfo(float).eps
"""Relative difference below which two sums of the same numbers count as equal."""


class Pairs:
    """Paired tests between the heads (or layers, or states) of one variable of `Moments`.

    What a text does to two heads alike cancels in their difference, so the errors of two means do not say how sure the
    difference is. With the residuals w (m − M) of every text,

        cov(a, b) = Σ_t w_a (m_a − M_a) · w_b (m_b − M_b) / (W_a W_b)
        se²(M_a − M_b) = n/(n−1) · (cov(a, a) + cov(b, b) − 2 cov(a, b))

    which with equal weights is the error of the paired t test, exactly. Nobody knows before the last text which head
    will be the largest, so the state holds the products of all pairs of cells: 2C × 2C numbers for C heads (166 kB for
    the 72 heads of MiniLM, 34 MB for 1,024 heads, and none beyond; as much again for each further label of an axis that
    is not selected; 134 MB at most where labels are cells), whatever the number of texts, by one matrix product for a
    batch.
    Bootstrap replicates would need less from 100 heads on, but their errors are known to 5 % only (200 replicates), and
    not where they matter most, with few texts. A result keeps only what its sentences need: how the largest compares
    with each of the others (`q`), at one number a head.

        self.moments = Moments(self, ("entropy", "confidence"))
        self.pairs = Pairs(self.moments, "confidence")
        … self.pairs.q()                     # confidence_top_q, confidence_top_q_count

    All sites must give the same texts in the same order. `select` picks one label of an axis, or several (a tuple, of
    one axis): these are then cells of every head, for `contrasts`. The cells of different labels of the axes that are
    left are not compared. With `together` the cells are the last rows of `Places`, those of all heads together. `name`
    is what the result calls the variable, where the lens calls it something else.
    """

    def __init__(
        self,
        moments: Moments,
        variable: str,
        select: Mapping[str, Label | tuple[Label, ...]] | None = None,
        *,
        together: bool = False,
        name: str | None = None,
    ) -> None:
        assert moments.places is not None, "the corpus is one place: there are no pairs"
        self.moments, self.variable, self.together = moments, variable, together
        self.places: Places = replace(moments.places, heads=None, together=0) if together else moments.places
        self.name: str = name or variable
        self.state: str = f"{self.name}_products"
        self.select: dict[str, Label | tuple[Label, ...]] = dict(select or {})
        several = [axis for axis, labels in self.select.items() if isinstance(labels, tuple)]
        assert len(several) < 2, "only the labels of one axis can be cells"
        self.across: str | None = several[0] if several else None
        self.axes = {axis: labels for axis, labels in moments.axes.items() if axis not in self.select}
        self.slices: tuple[int, ...] = tuple(len(labels or ()) for labels in self.axes.values())
        cells = int(np.prod(self.cells))
        self.few: bool = cells <= (MOST_CONTRASTED if self.across else MOST_CELLS)
        if not self.few:
            return
        shape = (int(np.prod(self.slices)), 2 * cells + 1, 2 * cells)
        moments.lens.state(self.state, zeros(*shape), merged, on_device=True, in_place=False, large=True)
        moments.pairs.append(self)

    @property
    def cells(self) -> tuple[int, ...]:
        """The shape of what is compared: [site (head) (label)]."""
        labels = self.select[self.across] if self.across else None
        return (*self.places.shape, len(labels)) if isinstance(labels, tuple) else self.places.shape

    def take(self, held: Held) -> None:
        """Add what `Moments` has collected from one batch or several."""
        by_site: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for sites, values in held:
            if self.variable in values and sites is not None:
                value, weight = values[self.variable]
                weight = weight.expand(value.shape)
                each = [(sites, value, weight)] if isinstance(sites, Site) else zip(sites, value, weight, strict=True)
                for site, one, its_weight in each:
                    by_site.setdefault(self.places.index(site), []).append((one, its_weight))
        if not by_site:
            return
        whole = {place: [torch.cat(parts) for parts in zip(*pairs, strict=True)] for place, pairs in by_site.items()}
        texts = {len(value) for value, _ in whole.values()}
        if len(texts) > 1:
            raise ValueError(f"{self.variable!r} has {sorted(texts)} texts at different sites: they cannot be paired")
        state: Tensor = getattr(self.moments.lens, self.state)
        value = state.new_zeros(
            texts.pop(), *self._shape, *(len(labels or ()) for labels in self.moments.axes.values())
        )
        weight = torch.zeros_like(value)
        for place, parts in whole.items():
            for room, part in zip((value, weight), parts, strict=True):
                there = room[:, place]
                there[tuple(slice(0, size) for size in part.shape)] = part.to(there)
        cells = [self._flat(room) for room in (value, weight)]
        setattr(self.moments.lens, self.state, _added(state, *cells))

    @property
    def _shape(self) -> tuple[int, ...]:
        """The sites and heads of the moments, of which `together` takes the last row."""
        return self.moments.places.shape if self.moments.places is not None else ()

    def _flat(self, cells: Float[Tensor, "text *cell"]) -> Float[Tensor, "slice text cell"]:
        lead = 1 + len(self._shape)
        for axis, (name, labels) in reversed(list(enumerate(self.moments.axes.items(), lead))):
            wanted, known = self.select.get(name), list(labels or ())
            if isinstance(wanted, tuple):
                places = torch.tensor([known.index(label) for label in wanted], device=cells.device)
                cells = cells.index_select(axis, places)
            elif wanted is not None:
                cells = cells.select(axis, known.index(wanted))
        if self.across is not None:  # its axis comes behind the heads
            left = [axis for axis in self.moments.axes if axis in self.axes or axis == self.across]
            cells = cells.movedim(lead + left.index(self.across), lead)
            lead += 1
        if self.together:
            cells, lead = cells.select(2, -1), lead - 1
        flat = cells.flatten(lead) if self.slices else cells[..., None]
        return flat.movedim(-1, 0).flatten(2)

    def q(self, *, largest: bool | None = True, layers: bool = False, size: bool = False) -> dict[str, xr.DataArray]:
        """How sure it is that each cell differs from the largest (smallest; None: each in turn) of its stack.

        p of all pairs of cells of a stack, corrected together for the false discovery rate (Benjamini–Hochberg): the
        extreme was chosen by looking at all of them. Missing for the extreme itself. `layers` compares the means over
        the heads of each layer, `size` the sizes of signed means.
        """
        assert self.across is None, "labels that are cells are compared by `contrasts`"
        if not self.few:
            return {}
        mean, covariance, count = self._estimates()
        ends = (True, False) if largest is None else (largest,)
        out = np.full((len(ends), len(mean), *self.places.shape), np.nan)
        out = out[:, :, :, 0] if layers and len(self.places.shape) > 1 else out
        texts = np.zeros(out.shape)
        for stack in self.places.stacks:
            sites = [number for number, site in enumerate(self.places.sites) if site.name == stack]
            for part in range(len(mean)):
                sign = np.where(size & (mean[part] < 0), -1.0, 1.0)  # a mean of 0 is compared too
                signed, shared = np.nan_to_num(mean[part]) * sign, covariance[part] * sign[:, None] * sign
                if layers:
                    rows = self._layer_means(sites, mean[part])
                    values, shared = rows @ signed, rows @ shared @ rows.T
                    least = np.array([count[part][row != 0].min() if row.any() else 0.0 for row in rows])
                    known = rows.any(1) & (least > 0)
                else:
                    cells = self._cells_of(sites).ravel()
                    values, shared = signed[cells], shared[np.ix_(cells, cells)]
                    known = np.isfinite(mean[part][cells]) & (count[part][cells] > 0)
                    least = np.where(known, count[part][cells], 0.0)
                for end, top in enumerate(ends):
                    found = extreme_q(values, shared, least, known, top)
                    out[end, part, sites] = found.reshape(out[end, part, sites].shape)
                    texts[end, part, sites] = np.where(np.isnan(found), 0, least).reshape(out[end, part, sites].shape)
        arrays: dict[str, xr.DataArray] = {}
        for top, q, counted in zip(ends, out, texts, strict=True):
            name = f"{'layer_' if layers else ''}{self.name}_{'top' if top else 'bottom'}_q"
            arrays[name] = self._labelled(q, layers)
            arrays[name].attrs["description"] = (
                f"q of the difference from the {'largest' if top else 'smallest'} of the stack: paired over texts, "
                "corrected over all pairs"
            )
            arrays[f"{name}_count"] = self._labelled(counted, layers).fillna(0).astype("int64")
        return arrays

    def means(self) -> Float[np.ndarray, "*cell"]:
        """The means of the cells [site (head) (label)]; NaN without a text."""
        assert not self.slices, "pick the labels of every axis"
        _, weight, total = self._sums()
        return (total / weight).numpy()[0].reshape(self.cells)

    def contrasts(self, rows: Float[np.ndarray, "row *cell"]) -> tuple[Estimate, Float[np.ndarray, "row row2"]]:
        """Sums of cells with these weights [row site (head) (label)], and their covariance (without n/(n−1)).

        Only cells that have a text may have a weight; a row without weights is missing.
        """
        assert self.few, "these cells were not paired"
        assert not self.slices, "pick the labels of every axis"
        mean, covariance, count = (part[0] for part in self._estimates())
        flat = rows.reshape(len(rows), -1)
        values = np.where(flat.any(1), flat @ np.nan_to_num(mean), np.nan)
        least = np.array([count[row != 0].min() if row.any() else 0.0 for row in flat])
        shared = flat @ covariance @ flat.T
        return Estimate(values, error_of_sum(np.diag(shared), least), least), shared

    def _cells_of(self, sites: list[int]) -> Int[np.ndarray, "site head"]:
        """The numbers of the cells of these sites."""
        heads = int(np.prod(self.places.shape[1:]))
        return np.arange(len(self.places.sites) * heads).reshape(-1, heads)[sites]

    def _layer_means(self, sites: list[int], mean: Float[np.ndarray, " cell"]) -> Float[np.ndarray, "site cell"]:
        """Weights of cells that make the mean over the heads that each layer has."""
        sums = np.zeros((len(sites), len(mean)))
        np.put_along_axis(sums, self._cells_of(sites), 1.0, 1)
        sums *= np.isfinite(mean)
        return sums / np.maximum(sums.sum(1, keepdims=True), 1)

    def _sums(self) -> list[Float[Tensor, "slice cell"]]:
        """The number of texts, Σ w and Σ w m of every cell, by slice."""
        sums = self.moments.sums()[:, self.moments.variables.index(self.variable)]
        return [self._flat(sums[row][None])[:, 0] for row in (COUNT, WEIGHT, TOTAL)]

    def _estimates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By slice: means, their covariance (without n/(n−1)) and the number of texts of every cell."""
        n, weight, total = self._sums()
        state = getattr(self.moments.lens, self.state)
        mean = total / weight
        known = weight > 0
        centred = _residuals_about(state, torch.where(known, mean, 0.0).to(state)).cpu()
        safe = torch.where(known, weight, 1.0)
        return mean.numpy(), (centred / safe[:, :, None] / safe[:, None]).numpy(), n.numpy()

    def _labelled(self, values: Float[np.ndarray, "slice *cell"], layers: bool) -> xr.DataArray:
        shaped = np.moveaxis(values, 0, -1).reshape(*values.shape[1:], *self.slices)
        if not layers or len(self.places.shape) == 1:
            return self.places.grid(torch.from_numpy(shaped), self.axes)
        laid = self.places.laid_out(shaped[:, None].repeat(self.places.shape[1], 1))
        whole = xr.DataArray(laid, dims=(*self.places.dims, *self.axes), coords=self.places.labels(self.axes))
        return whole.max(HEAD)


def extreme_q(
    values: Float[np.ndarray, " row"],
    covariance: Float[np.ndarray, "row row2"],
    count: Float[np.ndarray, " row"],
    known: np.ndarray,
    largest: bool,
    *,
    corrected: bool = False,
) -> Float[np.ndarray, " row"]:
    """q of every row against the extreme one; NaN for itself, and without two texts.

    The covariance is a sum over texts, which is multiplied by n/(n−1), unless it is `corrected` for that already.
    """
    out = np.full(len(values), np.nan)
    places = np.flatnonzero(known & (count > 1))
    if len(places) < 2:
        return out
    value, own, n = values[places], np.diag(covariance)[places], count[places]
    shared = covariance if len(places) == len(values) else covariance[np.ix_(places, places)]
    best, size = int(np.argmax(value) if largest else np.argmin(value)), len(places)
    family: list[list[np.ndarray]] = []
    for start in range(0, size - 1, _ROWS):  # a few rows at a time stay in the cache
        rows, columns = slice(start, start + _ROWS), slice(start + 1, None)
        above = np.tri(min(_ROWS, size - start), size - start - 1, -1) == 0
        apart = value[rows, None] - value[columns]
        rounding = _ROUNDING * (np.abs(value)[rows, None] + np.abs(value)[columns])
        both = own[rows, None] + own[columns]
        spread = both - 2 * shared[rows, columns]
        # Where every text gives the same number, what is left of its variance is rounding, and so is its covariance.
        spread = np.where(spread > np.maximum(_ROUNDING * both, rounding**2), spread, 0.0)
        texts = np.minimum(n[rows, None], n[columns])
        error = np.sqrt(spread if corrected else texts / (texts - 1) * spread)
        family.append([each[above] for each in (np.where(np.abs(apart) > rounding, apart, 0.0), error, texts)])
    one, other = np.minimum(best, (others := np.delete(np.arange(size), best))), np.maximum(best, others)
    chosen = one * (2 * size - one - 1) // 2 + other - one - 1  # the places of these pairs, which go row by row
    apart, error, texts = map(np.concatenate, zip(*family, strict=True))
    out[np.delete(places, best)] = false_discovery_among(Estimate(apart, error, texts), chosen)
    return out


def merged(states: Iterable[Float[Tensor, "slice row column"]]) -> Float[Tensor, "slice row column"]:
    """The cross-moments of all texts from those of some texts each."""
    first, *others = states
    for other in others:
        pivot = torch.where(_known(first), first[:, -1, : first.shape[-1] // 2], other[:, -1, : other.shape[-1] // 2])
        total = _about(first, pivot) + _about(other, pivot)
        total[:, -1, : pivot.shape[-1]] = pivot
        first = total
    return first


def _known(state: Float[Tensor, "slice row column"]) -> Tensor:
    """Cells with at least one text: Σ w² is not zero."""
    return state[:, :-1].diagonal(dim1=1, dim2=2)[:, state.shape[-1] // 2 :] > 0


def _about(
    state: Float[Tensor, "slice row column"], pivot: Float[Tensor, "slice cell"]
) -> Float[Tensor, "slice row column"]:
    """The same products with d = m − another pivot: the new residual w d is the old one plus w times the shift."""
    cells = state.shape[-1] // 2
    mixed, weights = state[:, :cells, cells:], state[:, cells:-1, cells:]
    new = torch.empty_like(state)
    new[:, :cells, :cells] = _residuals_about(state, pivot)
    new[:, :cells, cells:] = mixed + _shift(state, pivot)[:, :, None] * weights
    new[:, cells:-1, :cells] = new[:, :cells, cells:].mT
    new[:, cells:-1, cells:] = weights
    new[:, -1] = 0.0
    return new


def _shift(state: Float[Tensor, "slice row column"], pivot: Float[Tensor, "slice cell"]) -> Float[Tensor, "slice cell"]:
    return torch.where(_known(state), state[:, -1, : pivot.shape[-1]] - pivot, 0.0)


def _residuals_about(
    state: Float[Tensor, "slice row column"], pivot: Float[Tensor, "slice cell"]
) -> Float[Tensor, "slice cell cell2"]:
    """The products of the residuals alone, with another pivot."""
    cells, shift = state.shape[-1] // 2, _shift(state, pivot)
    residuals, mixed, weights = state[:, :cells, :cells], state[:, :cells, cells:], state[:, cells:-1, cells:]
    down, across = shift[:, :, None], shift[:, None]
    once = (mixed + 0.5 * down * weights) * across  # and once more for the other side
    return residuals + (once + once.mT)


def _added(
    state: Float[Tensor, "slice row column"],
    value: Float[Tensor, "slice text cell"],
    weight: Float[Tensor, "slice text cell"],
) -> Float[Tensor, "slice row column"]:
    if not value.shape[1]:
        return state
    cells = value.shape[-1]
    has = weight > 0
    first = value.gather(1, has.to(torch.uint8).argmax(1, keepdim=True))[:, 0]
    pivot = torch.where(_known(state), state[:, -1, :cells], torch.where(has.any(1), first, 0.0))
    weight = torch.where(has, weight, 0.0)
    columns = torch.cat([weight * torch.where(has, value - pivot[:, None], 0.0), weight], -1)
    last = torch.cat([pivot, torch.zeros_like(pivot)], -1)
    new = torch.empty_like(state)
    torch.baddbmm(state[:, :-1], columns.mT, columns, out=new[:, :-1])
    new[:, -1] = last
    return new
