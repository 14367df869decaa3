"""Rank correlations of weights and norms, from the sampled pairs of the corpus."""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.lens.base import Lens
from lorgnette.lens.norms.pair_sample import NORM, NUMBER, WEIGHT, PairSample
from lorgnette.statistics.spearman import rounded, spearman_by_row
from lorgnette.texts.token_kinds import CATEGORIES


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
    """ρ and the size of each sample, all at once: a GPU is waited for once. NaN and 0 where there is none."""
    size = samples[NUMBER].isfinite().sum(-1)
    rho = spearman_by_row(rounded(samples[WEIGHT]), rounded(samples[NORM]), size)
    return torch.stack([rho, size.where(~rho.isnan(), 0)]).cpu()
