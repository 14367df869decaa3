"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.heavy_lifting.grid import FULL, QUICK
from reproductions.heavy_lifting.readings import SHARES, Readings


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    readings = Readings(cells)
    size = QUICK if cells.settings.quick else FULL
    beaten = {left: readings.beaten("own", left) for left in readings.left}
    after = {left: readings.beaten_after(left) for left in readings.left}
    spread = {
        left: sum(max(one) - min(one) for one in draws.values()) / len(draws)
        for left in readings.left
        if (draws := readings.draws(left))
    }
    return {
        "size": size,
        "left": readings.left,
        "shares": SHARES,
        "beaten": beaten,
        "after": after,
        "spread": spread,
        "roles": readings.roles,
    }
