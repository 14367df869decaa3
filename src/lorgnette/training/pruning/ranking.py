"""Heads in the order in which they should go, by what lenses say of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.lens.importance.lens import need
from lorgnette.looking.look import look
from lorgnette.looking.texts import Texts, TokenizedTexts
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Knockout

TURNS = 12
TEXTS = 200
"""Heads are ranked on so many validation texts."""


def importance_scores(
    subject: Subject, texts: Texts, *, progress: bool = False, turns: int = TURNS
) -> dict[tuple[Site, int], float]:
    """Heads by the turn in which they go; the larger, the dearer.

    Greedy: a share of the heads goes in each turn (a twelfth), those that the loss depends on least (`need` of the lens
    `importance`), and the rest is measured again without them, so that heads that stand in for each other do not both
    go. The first turn is the order of the report. Every turn is one pass forwards and one backwards over the texts.
    """
    tokenized = TokenizedTexts(subject, texts, truncate=True)
    left = [(each.site, n) for each in subject.anatomy.sites if each.site.stack != "pooler" for n in each.numbers]
    share = -(-len(left) // turns)
    scores: dict[tuple[Site, int], float] = {}
    while left:
        needs = _needs(subject, tokenized, list(scores), progress=progress)
        left.sort(key=lambda head: needs[head])
        for head in left[:share]:
            scores[head] = float(len(scores))
        left = left[share:]
    return scores


def _needs(
    subject: Subject, texts: TokenizedTexts, gone: Sequence[tuple[Site, int]], *, progress: bool
) -> dict[tuple[Site, int], float]:
    """How much the loss depends on each head, with some heads gone."""
    from lorgnette.lens.importance.lens import Importance

    places: dict[Site, list[int]] = {}
    for site, number in gone:
        places.setdefault(site, []).append(subject.anatomy[site].numbers.index(number))
    with subject.tapped(Knockout(places)):
        importance = look(subject, texts, [Importance(())], progress=progress and not gone)["importance"]
    return _cells(subject, need(importance))


def agreement_scores(subject: Subject, texts: Texts, *, progress: bool = False) -> dict[tuple[Site, int], float]:
    """The mean rank of each head over the signals that the lens `agreement` compares; the larger, the dearer.

    Sharpness, confidence, norm, relevance, the gradient of a gate, and the loss without the head; ties share a rank. A
    head counts by the size of what it does: signals with a sign enter without it.
    """
    from lorgnette.lens import get
    from lorgnette.lens.signals import SIGNALS_OF, signals_in

    lenses = [get(name) for name in SIGNALS_OF]
    signals = signals_in(look(subject, texts, lenses, truncate=True, progress=progress))
    return mean_ranks([_cells(subject, signal.size) for signal in signals.values()])


def mean_ranks(signals: list[dict[tuple[Site, int], float]]) -> dict[tuple[Site, int], float]:
    """Ranks from 0 within each signal, averaged over signals."""
    from scipy.stats import rankdata

    heads = list(signals[0])
    ranks = np.mean([rankdata([signal[head] for head in heads]) - 1 for signal in signals], axis=0)
    return dict(zip(heads, ranks.tolist(), strict=True))


def top_heads(
    scores: Mapping[tuple[Site, int], float],
    count: int,
    stacks: Sequence[str] | None = None,
    *,
    empty: bool = True,
) -> dict[Site, list[int]]:
    """The `count` heads with the largest scores, by site; of the sites in `stacks` only, ties to the first.

    Unless layers may be `empty`, the best head of each stays, whatever the others have.
    """
    chosen = [head for head in scores if stacks is None or head[0].name in stacks]
    ranked = sorted(chosen, key=lambda head: -scores[head])
    firsts = [] if empty else [*{site: (site, number) for site, number in reversed(ranked)}.values()]
    best = [*firsts, *(head for head in ranked if head not in firsts)][: max(count, len(firsts))]
    heads_left: dict[Site, list[int]] = {site: [] for site, _ in chosen}
    for site, number in sorted(best):
        heads_left[site].append(number)
    return heads_left


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
