"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.anisotropy_or_training.grid import FAST, SLOW, WARM, Setting
from reproductions.anisotropy_or_training.runs import HIGH, LESS, Runs
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.frame.page import published

_SHOWN = {
    "glove": Setting("glove-100"),
    "padded": Setting("padded-300"),
    "padded_slow": Setting("padded-300", SLOW),
    "padded_warm": Setting("padded-300", warmup=WARM),
    "narrow": Setting("random-100"),
    "narrow_slow": Setting("random-100", SLOW),
    "narrow_fast": Setting("random-100", FAST),
    "wide": Setting("random-300"),
    "wide_slow": Setting("random-300", SLOW),
}
_READ = {
    "last-{}-values": "not identified",
    "gentle-random-300-{}": "holds",
    "gentle-padded-300-{}": "holds",
    "fast-{}": "holds",
    "learnt-less-{}": "cannot tell",
    "warm-padded-300-yelphat": "holds",
    "correlation-yelphat": "holds",
    "correlation-hatexplain": "cannot tell",
}
"""The verdicts for which the discussion was written."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    runs = Runs(cells)
    as_read = len(runs.corpora) == 2 and all(
        id.format(corpus) in claims and claims[id.format(corpus)].verdict == verdict
        for corpus in runs.corpora
        for id, verdict in _READ.items()
    )
    return {
        "as_read": as_read,
        "less": LESS,
        "sim": {
            corpus: {name: _mean(runs.sim(corpus, one)) for name, one in _SHOWN.items()} for corpus in runs.corpora
        },
        "accuracy": {
            corpus: {name: _mean(runs.accuracy(corpus, one, "test")) for name, one in _SHOWN.items()}
            for corpus in runs.corpora
        },
        "anisotropic": {
            corpus: {split: _sums(runs, corpus, split) for split in ("train", "test")} for corpus in runs.corpora
        },
        "others": {corpus: runs.less_otherwise(corpus) for corpus in runs.corpora},
        "chance": {corpus: _chance(runs, corpus) for corpus in runs.corpora},
        "entropy": {corpus: _entropy(runs, corpus) for corpus in runs.corpora},
        "theirs": published("anisotropy_or_training"),
    }


def _mean(values: Any) -> float | None:
    return float(values.mean()) if len(values) else None


def _sums(runs: Runs, corpus: str, split: str) -> list[int]:
    """Of the runs with SIM above .9: how many learnt less, and how many there are."""
    pairs = runs.anisotropic(corpus, split).values()
    return [sum(pair[at] for pair in pairs) for at in (0, 1)]


def _chance(runs: Runs, corpus: str) -> int:
    """Of the runs with SIM above .9, those at chance."""
    deep = runs.settings(corpus, deep=True)
    return int(sum((~runs.learnt(corpus, one).astype(bool) & (runs.sim(corpus, one) > HIGH)).sum() for one in deep))


def _entropy(runs: Runs, corpus: str) -> dict[str, float | None]:
    """H of the row of <cls> in the first layer, mean over the runs of five layers with SIM above .9 and the others."""
    settings = runs.settings(corpus, deep=True)
    if not settings:
        return {"anisotropic": None, "others": None}
    sims = np.concatenate([runs.sim(corpus, one) for one in settings])
    entropies = np.concatenate([runs.of(corpus, one, "trained.entropy", 1) for one in settings])
    return {"anisotropic": _mean(entropies[sims > HIGH]), "others": _mean(entropies[sims <= HIGH])}
