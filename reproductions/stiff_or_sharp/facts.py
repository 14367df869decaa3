"""What the prose needs to know: the settings of the penalties."""

from collections.abc import Mapping
from typing import Any

from reproductions.fosse2023.grid import NAMES
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.stiff_or_sharp.grid import HOLD, STEADY, STIFF, STRENGTH
from reproductions.stiff_or_sharp.runs import Runs

_READ = {
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
        "strength": {NAMES[corpus]: value for corpus, value in STRENGTH.items()},
        "steady": {NAMES[corpus]: value for corpus, value in STEADY.items()},
        "stiff": STIFF,
        "hold": HOLD,
    }
