"""Rank correlations of weights and norms, from the sampled pairs of the corpus."""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.contributions.pair_sample import PairSample
from lorgnette.lens.base import Lens
from lorgnette.statistics.spearman import rounded, spearman_by_row
from lorgnette.texts.token_kinds import CATEGORIES


def rank_correlations(lens: Lens, pairs: PairSample, kinds: Sequence[str]) -> dict[str, xr.DataArray]:
    """By layer, and over the layers of a stack; `_count` is the sample's size, `_pairs` how many there were."""
    sites = lens.sites
    names = list(dict.fromkeys(site.name for site in sites))
    groups = [[k for k, site in enumerate(sites) if site.name == name] for name in names]
    pair_counts = torch.zeros(len(sites), len(kinds), dtype=torch.float64)
    pair_counts[:, [CATEGORIES.index(kind) for kind in pairs.kinds]] = getattr(lens, f"{pairs.state}_seen")
    rho, count = _correlations(pairs, [[k] for k in range(len(sites))], len(kinds))
    by_kind = {axes.CATEGORY: list(kinds)}
    out = {"spearman": lens.by_layer.grid(rho, by_kind)}
    for name, cells in (("spearman_count", count), ("spearman_pairs", pair_counts)):
        out[name] = lens.by_layer.grid(cells, by_kind).fillna(0).astype("int64")
    rho, count = _correlations(pairs, groups, len(kinds))
    labels = {axes.STACK: names, axes.CATEGORY: list(kinds)}
    totals = torch.stack([pair_counts[group].sum(0) for group in groups])
    out["spearman_all"] = xr.DataArray(rho.numpy(), coords=labels)
    out["spearman_all_count"] = xr.DataArray(count.numpy().astype("int64"), coords=labels)
    out["spearman_all_pairs"] = xr.DataArray(totals.numpy().astype("int64"), coords=labels)
    return out


def _correlations(
    pairs: PairSample, groups: Sequence[Sequence[int]], kinds: int
) -> tuple[Float[Tensor, "group kind"], Float[Tensor, "group kind"]]:
    """ρ and the size of the sample for groups of sites and all kinds; NaN and 0 where there is none."""
    rho = torch.full((len(groups), kinds), torch.nan, dtype=torch.float64)
    count = torch.zeros_like(rho)
    alike: dict[int, list[tuple[int, int, Tensor, Tensor]]] = {}
    for number, sites in enumerate(groups):
        for kind, name in enumerate(pairs.kinds):
            weight, norm = pairs.sample(sites, kind)
            if len(weight) > 1:
                cell = (number, CATEGORIES.index(name), rounded(weight), rounded(norm))
                alike.setdefault(len(weight), []).append(cell)
    for size, cells in alike.items():
        _, _, weights, norms = zip(*cells, strict=True)
        found = spearman_by_row(torch.stack(weights), torch.stack(norms)).cpu()
        for (number, kind, *_), correlation in zip(cells, found, strict=True):
            rho[number, kind] = correlation
            count[number, kind] = float(size) * (~correlation.isnan())
    return rho, count
