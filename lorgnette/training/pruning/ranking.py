"""Heads in the order in which they should go, by what lenses say of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from lorgnette.attention import Site
from lorgnette.errors import UserError
from lorgnette.lenses.importance.order import need
from lorgnette.looking.look import look
from lorgnette.subject import Subject

TEXTS = 200
"""Heads are ranked on so many validation texts."""


def importance_scores(subject: Subject, texts: Any, *, progress: bool = False) -> dict[tuple[Site, int], float]:
    """How much the loss depends on each head (`need` of the lens `importance`); the larger, the dearer.

    One pass forwards and one backwards over the texts; no head is taken away.
    """
    from lorgnette.lenses.importance.lens import Importance

    return _cells(subject, need(look(subject, texts, [Importance(())], truncate=True, progress=progress)["importance"]))


def agreement_scores(subject: Subject, texts: Any, *, progress: bool = False) -> dict[tuple[Site, int], float]:
    """The mean rank of each head over the signals that the lens `agreement` compares; the larger, the dearer.

    Sharpness, confidence, norm, relevance, the gradient of a gate, and the loss without the head; ties share a rank. A
    head counts by the size of what it does: signals with a sign enter without it.
    """
    from lorgnette.lenses import get
    from lorgnette.lenses.agreement.lens import Agreement, _signals

    lenses = [get(name) for name in Agreement.needs]
    signals = _signals(look(subject, texts, lenses, truncate=True, progress=progress))
    return mean_ranks([_cells(subject, abs(signal.value)) for signal in signals.values()])


def mean_ranks(signals: list[dict[tuple[Site, int], float]]) -> dict[tuple[Site, int], float]:
    """Ranks from 0 within each signal, averaged over signals."""
    from scipy.stats import rankdata

    heads = list(signals[0])
    ranks = np.mean([rankdata([signal[head] for head in heads]) - 1 for signal in signals], axis=0)
    return dict(zip(heads, ranks.tolist(), strict=True))


def dearest(
    scores: Mapping[tuple[Site, int], float], count: int, stacks: tuple[str, ...] | None = None
) -> dict[Site, list[int]]:
    """The `count` heads with the largest scores, by site; of the sites in `stacks` only, ties to the first."""
    chosen = [head for head in scores if stacks is None or head[0].name in stacks]
    best = sorted(chosen, key=lambda head: -scores[head])[:count]
    kept: dict[Site, list[int]] = {site: [] for site, _ in chosen}
    for site, number in sorted(best):
        kept[site].append(number)
    return kept


def _cells(subject: Subject, array: xr.DataArray) -> dict[tuple[Site, int], float]:
    out = {}
    for each in subject.anatomy.sites:
        if each.site.stack == "pooler":
            continue
        for number in each.numbers:
            value = float(array.sel(stack=each.site.name, layer=each.site.layer + 1, head=number + 1))
            if not np.isfinite(value):
                raise UserError(f"{each.site}, head {number + 1} could not be measured: the corpus has nothing for it.")
            out[each.site, number] = value
    return out
