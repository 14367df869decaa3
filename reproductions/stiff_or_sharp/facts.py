"""What the prose needs to know: the settings of the penalties."""

from collections.abc import Mapping
from typing import Any

from reproductions.fosse2023.grid import NAMES
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.stiff_or_sharp.grid import HOLD, STEADY, STIFF, STRENGTH


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    return {
        "strength": {NAMES[corpus]: value for corpus, value in STRENGTH.items()},
        "steady": {NAMES[corpus]: value for corpus, value in STEADY.items()},
        "stiff": STIFF,
        "hold": HOLD,
    }
