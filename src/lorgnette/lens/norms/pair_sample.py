"""A bounded sample of (α_ij, ‖f(x_j)‖) by kind of token, for rank correlations over corpora of any size."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.scores import Scores
from lorgnette.contributions.pairs import TokenPairs, visible
from lorgnette.lens.base import Lens
from lorgnette.lens.parts import Part
from lorgnette.statistics.hashing import UNIT, bar, drawn, text_keys
from lorgnette.statistics.spearman import rounded, spearman_by_row
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import Json

NUMBER, WEIGHT, NORM = range(3)


def smallest(states: Iterable[Float[Tensor, "what site kind place"]]) -> Float[Tensor, "what site kind place"]:
    """Merge samples: keep the pairs with the smallest numbers, as many as one sample holds, in order."""
    parts = list(states)
    whole = torch.cat(parts, -1)
    order = whole[NUMBER].sort(stable=True).indices[..., : parts[0].shape[-1]]
    return whole.gather(-1, order.expand(3, *order.shape))


class PairSample(Part[tuple[Tensor, Tensor]]):
    """For each site and kind of token the `size` pairs of smallest number, with α and ‖f‖.

    A pair's number depends on the text's id, site, head, query, key and kind alone. One state holds [number, weight,
    norm] of every place, infinite numbers where there is none; it is kept where the model is, where nothing waits for
    it. (A `HashSample` has an index of varying length on the CPU.)
    """

    def __init__(self, lens: Lens, kinds: Sequence[str], size: int, state: str = "pairs") -> None:
        super().__init__(lens)
        self.kinds, self.size, self.state = tuple(kinds), size, state
        none = torch.tensor([torch.inf, 0.0, 0.0], dtype=torch.float64)[:, None, None, None]  # number, weight, norm
        start = none.expand(3, len(lens.sites), len(self.kinds), size)
        lens.state(state, start, smallest, on_device=True, in_place=False, large=True)  # ranks are found where it is
        lens.sums(f"{state}_seen", len(lens.sites), len(self.kinds))
        self._places: _Places | None = None
        self._visible: tuple[Tokens, Tokens, Tensor] | None = None

    @property
    def causal(self) -> bool:
        """Whether the model's own mask hides later tokens."""
        return self.lens.subject.anatomy.causal

    def __getstate__(self) -> Json:
        return {**vars(self), "_visible": None, "_places": None}

    def draw(self, call: Call, batch: Batch, site: Site, *, any_order: bool = False) -> TokenPairs:
        """The pairs of this call that may belong to the sample, text by text; also counts all pairs.

        `any_order`: whoever reads them takes them in any order, with infinite numbers for those that are none.
        """
        self.count(call, batch, site)
        return self.drawn(call, batch, site)

    def count(self, call: Call, batch: Batch, site: Site) -> None:
        """Count the pairs of a query and a key that it may see, by kind of key."""
        queries, keys = batch.queries(site), batch.keys(site)
        plain = padded_only(call.scores, causal=self.causal)
        known = self._visible
        if not plain or known is None or known[0] is not queries or known[1] is not keys:
            self._visible = known = queries, keys, visible_pairs(call.scores, queries.mask, self._by_kind(keys))
        visible, state = known[2], getattr(self.lens, f"{self.state}_seen")
        state[self.lens.position[site]] += visible.to(state) * call.query.shape[1]

    def _by_kind(self, keys: Tokens) -> Bool[Tensor, "text kind key"]:
        return keys.kinds(self.kinds).transpose(1, 2)

    def drawn(self, call: Call, batch: Batch, site: Site) -> TokenPairs:
        """The pairs of this call whose numbers are small enough, drawn from the numbers of their groups."""
        queries, keys = batch.queries(site), batch.keys(site)
        groups = _Groups(call.scores, queries.mask.cpu(), self._by_kind(keys).cpu())
        seeds = text_keys([example.id for example in batch.examples], [(site, kind) for kind in self.kinds])
        full = getattr(self.lens, self.state)[NUMBER, self.lens.position[site], :, -1].cpu().numpy()
        sizes = groups.sizes.reshape(len(seeds), -1).sum(0)
        below = np.minimum(full, bar(sizes, self.size))
        while True:
            group, index, number = drawn(seeds.ravel(), groups.sizes, np.tile(below, len(seeds)))
            pairs = groups.pairs(group, index, number)
            counts = np.bincount(pairs.kind.cpu().numpy(), minlength=len(self.kinds))
            short = (counts < self.size) & (below < full)
            if not short.any():
                return pairs
            raised = np.where(below * UNIT > 1, np.inf, below * 4)
            below = np.where(short, np.minimum(full, raised), below)

    def add(self, site: Site, pairs: TokenPairs, norms: Float[Tensor, "text head key"]) -> None:
        """Hold the pairs of one call; a stratum is a site and a kind."""
        values = pairs.values
        if values is None:
            norm = norms[pairs.text, pairs.head, pairs.key].double()
            values = torch.stack([pairs.number, pairs.weight, norm])
        stratum = (pairs.kind + self.lens.position[site] * len(self.kinds)).int()
        self.held.append((stratum, values))

    def take(self, items: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Keep the smallest numbers of each site and kind, without reading any of them on the CPU."""
        self._visible = None
        state: Tensor = getattr(self.lens, self.state)
        device, old = state.device, self._constants()
        stratum = torch.cat([old.stratum, *(each.to(device) for each, _ in items)])
        values = torch.cat([state.flatten(1), old.empty, *(each.to(device) for _, each in items)], 1)
        if device.type == "cpu":  # where it is known at once which places are empty, they need not be sorted
            drawn = values[NUMBER].isfinite() | (stratum == len(old.strata) - 1)
            stratum, values = stratum[drawn], values[:, drawn]
        order = values[NUMBER].sort(stable=True).indices
        stratum, again = stratum[order].sort(stable=True)
        start = torch.searchsorted(stratum, old.strata)
        place = start[:-1, None] + old.places
        # Where a stratum has too few, the place behind all of them, which is empty.
        place = torch.where(place < start[1:, None], place, start[-1]).flatten()
        place = order.index_select(0, again.index_select(0, place))
        new_state = values.gather(1, place.expand(3, -1)).reshape(state.shape)
        setattr(self.lens, self.state, new_state)

    def _constants(self) -> "_Places":
        state: Tensor = getattr(self.lens, self.state)
        if self._places is None or self._places.stratum.device != state.device:
            self._places = _Places(state.shape[1] * state.shape[2], self.size, state.device)
        return self._places

    def samples(self, groups: Sequence[Sequence[int]], most: int) -> Float[Tensor, "what cell kind place"]:
        """The first `most` pairs of the sample of each site, then of each group of sites together."""
        state: Tensor = getattr(self.lens, self.state)[..., : max(most, 1)]
        return torch.cat([state, *(smallest(state[:, site : site + 1] for site in group) for group in groups)], 1)


class _Places:
    """The constants of a sample: the stratum of each place, and an empty place."""

    def __init__(self, strata: int, size: int, device: torch.device) -> None:
        self.strata: Int[Tensor, " boundary"] = torch.arange(strata + 1, dtype=torch.int32, device=device)
        self.places: Int[Tensor, " place"] = torch.arange(size, device=device)
        # The empty place is a stratum of its own, behind all others.
        self.stratum: Int[Tensor, " pair"] = self.strata[:-1, None].expand(-1, size).flatten()
        self.stratum = torch.cat([self.stratum, self.strata[-1:]])
        self.empty: Float[Tensor, "what 1"] = torch.zeros(3, 1, dtype=torch.float64, device=device)
        self.empty[NUMBER] = torch.inf


def padded_only(scores: Scores, *, causal: bool) -> bool:
    """True if nothing is hidden but padding, the same for all heads and queries, and, if `causal`, what comes later."""
    mask, band = scores.hidden
    queries, keys = scores.shape[2:]
    within = band.window is None or band.window >= keys - 1
    alike = mask is None or mask.shape[1:3] == (1, 1)
    return alike and within and band.causal == causal and queries == keys


class _Groups:
    """The pairs of each text and kind, numbered from 0 without regard to padding: head, query, key in turn."""

    def __init__(
        self, scores: Scores, queries: Bool[Tensor, "text query"], kinds: Bool[Tensor, "text kind key"]
    ) -> None:
        self.scores, self.heads, self.kinds = scores, scores.shape[1], kinds.shape[1]
        # Positions of the tokens that count, first.
        self.queries = np.argsort(~queries.numpy(), axis=-1, kind="stable")
        self.keys = np.argsort(~kinds.flatten(0, 1).numpy(), axis=-1, kind="stable")
        self.query_counts = np.repeat(queries.sum(-1).numpy(), self.kinds)
        self.key_counts = kinds.flatten(0, 1).sum(-1).numpy()
        self.sizes = self.heads * self.query_counts * self.key_counts

    def pairs(self, group: np.ndarray, index: np.ndarray, number: np.ndarray) -> TokenPairs:
        """Decode; pairs that the mask forbids are not there."""
        text = group // self.kinds
        rest, nth_key = np.divmod(index, np.maximum(self.key_counts[group], 1))
        head, nth_query = np.divmod(rest, np.maximum(self.query_counts[group], 1))
        arrays = (text, head, self.queries[text, nth_query], self.keys[group, nth_key], group % self.kinds)
        device = self.scores.query.device
        indices = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays]
        drawn = torch.from_numpy(number).to(device)
        is_visible = visible(self.scores, *indices[:4])
        if not is_visible.all():
            indices, drawn = [each[is_visible] for each in indices], drawn[is_visible]
        of_text, of_head, query, key, kind = indices
        return TokenPairs(of_text, of_head, query, key, kind, drawn, torch.zeros_like(drawn))


def visible_pairs(
    scores: Scores, queries: Bool[Tensor, "text query"], kinds: Bool[Tensor, "text kind key"]
) -> Float[Tensor, " kind"]:
    """Number of pairs of a query and a key that it may see, for each kind of key, of one head."""
    if scores.rows_alike:
        return (queries.sum(-1)[:, None] * kinds.sum(-1)).sum(0).double()
    return (scores.query_counts(queries)[:, None] * kinds).sum((0, 2)).double()


def rank_correlations(lens: Lens, pairs: PairSample, kinds: Sequence[str]) -> dict[str, xr.DataArray]:
    """By layer, and over the layers of a stack; `_count` is the sample's size, `_pairs` how many there were."""
    sites = lens.sites
    names = list(dict.fromkeys(site.name for site in sites))
    groups = [[k for k, site in enumerate(sites) if site.name == name] for name in names]
    columns = [CATEGORIES.index(kind) for kind in pairs.kinds]
    # By site, then by group of sites; NaN and 0 of kinds that have no sample.
    found = torch.zeros(3, len(sites) + len(groups), len(kinds), dtype=torch.float64)
    rho, count, seen = found
    rho.fill_(torch.nan)
    seen[: len(sites), columns] = getattr(lens, f"{pairs.state}_seen").to(found)
    seen[len(sites) :] = torch.stack([seen[group].sum(0) for group in groups])
    found[:2, :, columns] = _correlations(pairs.samples(groups, most=int(seen.max())))
    by_kind = {axes.CATEGORY: list(kinds)}
    (rho, all_rho), (count, all_count), (seen, all_seen) = (each.split([len(sites), len(groups)]) for each in found)
    out = {"spearman": lens.by_layer.grid(rho, by_kind)}
    for name, cells in (("spearman_count", count), ("spearman_pairs", seen)):
        out[name] = lens.by_layer.grid(cells, by_kind).fillna(0).astype("int64")
    labels = {axes.STACK: names, axes.CATEGORY: list(kinds)}
    out["spearman_all"] = xr.DataArray(all_rho.numpy(), coords=labels)
    out["spearman_all_count"] = xr.DataArray(all_count.numpy().astype("int64"), coords=labels)
    out["spearman_all_pairs"] = xr.DataArray(all_seen.numpy().astype("int64"), coords=labels)
    return out


def _correlations(samples: Float[Tensor, "what cell kind place"]) -> Float[Tensor, "2 cell kind"]:
    """ρ and the size of each sample, moved to the CPU all at once. NaN and 0 where there is none."""
    size = samples[NUMBER].isfinite().sum(-1)
    rho = spearman_by_row(rounded(samples[WEIGHT]), rounded(samples[NORM]), size)
    return torch.stack([rho, size.where(~rho.isnan(), 0)]).cpu()
