"""What the prose needs to know: the settings of the penalties."""

from collections.abc import Mapping
from typing import Any

from reproductions.fosse2023.grid import NAMES
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.stiff_or_sharp.grid import HOLD, STEADY, STIFF, STRENGTH
from reproductions.stiff_or_sharp.runs import Runs

_READ = {
    "centred-keys-hatexplain": "holds",
    "centred-keys-yelphat": "holds",
    "centred-keys-esnli": "holds",
    "centred-penalty-hatexplain": "holds",
    "gauge-penalty-hatexplain": "holds",
    "gauge-stiffening-hatexplain": "holds",
    "gauge-stiffening-yelphat": "holds",
    "gauge-stiffening-esnli": "holds",
    "sharpens-hatexplain": "holds",
    "stiffens-hatexplain": "holds",
    "stays-sharp-hatexplain": "holds",
    "placebo-hatexplain": "holds",
    "penalty-hatexplain": "holds",
    "penalty-yelphat": "cannot tell",
    "stiffness-auprc-hatexplain": "holds",
    "stiffness-auprc-yelphat": "holds",
    "stiffness-auprc-esnli": "holds",
    "stiffness-accuracy-esnli": "holds",
    "sharpness-flips-yelphat": "holds",
    "placebo-yelphat": "holds",
    "placebo-esnli": "holds",
    "stiffness-accuracy-hatexplain": "holds",
    "stiffness-flips-hatexplain": "cannot tell",
    "sharpness-auprc-hatexplain": "cannot tell",
    "sharpness-auprc-yelphat": "cannot tell",
    "lost-hatexplain": "cannot tell",
    "needed-hatexplain": "cannot tell",
}
"""The verdicts for which the discussion was written."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    runs = Runs(cells)
    chance = {NAMES[corpus]: {arm: runs.at_chance(corpus, arm) for arm in runs.arms} for corpus in runs.corpora}
    return {
        "as_read": all(id in claims and claims[id].verdict == verdict for id, verdict in _READ.items()),
        "counts_by_corpus": {NAMES[corpus]: len(runs.of(corpus, "stiff", "auprc")) for corpus in runs.corpora},
        "chance": {name: sum(arms.values()) for name, arms in chance.items()},
        "centred_most": _centred_most(runs.gauge),
        "strength": {NAMES[corpus]: value for corpus, value in STRENGTH.items()},
        "steady": {NAMES[corpus]: value for corpus, value in STEADY.items()},
        "stiff": STIFF,
        "hold": HOLD,
    }


def _centred_most(runs: Runs) -> float | None:
    """By how much stiffening changes centred SIM of the values where it changes it most, mean over seeds."""
    effects = [runs.effect(corpus, ("stiff", "held"), "value_centred")[0] for corpus in runs.corpora]
    return max((abs(float(one.mean())) for one in effects if len(one)), default=None)
