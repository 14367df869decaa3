"""Rank agreement of several signals over the same items, with bootstrap intervals."""

import warnings

import numpy as np
from jaxtyping import Float, Int

from lorgnette.statistics.bootstrap import DRAWS, bootstrap_draws
from lorgnette.statistics.estimate import CONFIDENCE


def ranked(values: Float[np.ndarray, "*rest item"]) -> Float[np.ndarray, "*rest item"]:
    """Ranks along the last axis, from 1; ties share the mean of theirs."""
    from scipy.stats import rankdata

    return rankdata(values, axis=-1)


def correlations(ranks: Float[np.ndarray, "*draw signal item"]) -> Float[np.ndarray, "*draw signal signal2"]:
    """Pearson's correlation of ranks, so Spearman's ρ; NaN where a signal is the same for all items."""
    centred = ranks - ranks.mean(-1, keepdims=True)
    size = np.sqrt((centred**2).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = centred @ np.swapaxes(centred, -1, -2) / (size[..., :, None] * size[..., None, :])
    return np.clip(rho, -1.0, 1.0)


def spearman_draws(
    values: Float[np.ndarray, "signal item"], *, draws: int = DRAWS, seed: int = 0
) -> Float[np.ndarray, "signal signal2 draw"]:
    """ρ of every pair of signals over items drawn with replacement, the same items for all pairs."""

    def matrices(drawn: Float[np.ndarray, "signal *draw item"], axis: int = -1) -> Float[np.ndarray, "s s *draw"]:
        return np.moveaxis(correlations(ranked(np.moveaxis(drawn, 0, -2))), (-2, -1), (0, 1))

    return bootstrap_draws(values, matrices, draws=draws, seed=seed)


def bounds_of(drawn: Float[np.ndarray, "*rest draw"]) -> Float[np.ndarray, "2 *rest"]:
    """The 95 % percentile interval over draws; those in which a signal is constant are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a constant signal has no draw at all: NaN, as it should be
        return np.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=-1)


def spearman_matrix(
    values: Float[np.ndarray, "signal item"], *, draws: int = DRAWS, seed: int = 0
) -> tuple[Float[np.ndarray, "signal signal2"], Float[np.ndarray, "2 signal signal2"]]:
    """ρ of every pair of signals, and its 95 % interval: percentiles over items drawn with replacement.

    The items (heads) are the sample, so the interval says how far ρ hangs on single heads; it does not hold the noise
    that each value has from the texts.
    """
    return correlations(ranked(values)), bounds_of(spearman_draws(values, draws=draws, seed=seed))


def advantages(
    rho: Float[np.ndarray, " signal"], drawn: Float[np.ndarray, "signal draw"]
) -> tuple[Float[np.ndarray, "signal signal2"], ...]:
    """ρ_a − ρ_b of correlations with one reference, with both ends of the interval and a two-sided p.

    p is twice the smaller share of draws on one side of zero, (1 + count) / (1 + draws), at most 1. The draws are
    paired: both correlations are over the same items.
    """
    difference = drawn[:, None] - drawn[None]
    known = np.isfinite(difference).sum(-1)
    sides = np.minimum((difference <= 0).sum(-1), (difference >= 0).sum(-1))
    p = np.where(known > 0, np.minimum(1.0, 2 * (1 + sides) / (1 + known)), np.nan)
    low, high = bounds_of(difference)
    return rho[:, None] - rho[None], low, high, p


def within_groups(
    values: Float[np.ndarray, "signal item"], group: Int[np.ndarray, " item"]
) -> Float[np.ndarray, "signal item"]:
    """Ranks within each group (the heads of a layer), scaled to 0–1 with mean ½, so that groups do not differ."""
    out = np.empty(values.shape)
    for number in np.unique(group):
        members = group == number
        out[:, members] = (ranked(values[:, members]) - 0.5) / members.sum()
    return out


def reliability(values: Float[np.ndarray, " item"], errors: Float[np.ndarray, " item"]) -> float:
    """Reliability, 1 − mean(se²) / variance: the share of the variance between items that is not noise; at least 0."""
    spread = float(values.var(ddof=1)) if len(values) > 1 else 0.0
    return max(0.0, 1.0 - float((errors**2).mean()) / spread) if spread > 0 else float("nan")
