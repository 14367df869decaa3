"""What the prose needs to know."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.heavy_lifting.grid import AFTER, FULL, QUICK
from reproductions.heavy_lifting.readings import SHARES, Readings

_READ = {
    "third-loses-little": "does not hold",
    "sixth-loses-little": "does not hold",
    "layers-24": "holds",
    "layers-12": "holds",
    "cut-24": "cannot tell",
    "cut-confidence-over-chance": "cannot tell",
    "roles-needed": "cannot tell",
}
"""The verdicts for which the discussion was written."""
_GRADIENT = (
    "Those with the largest gradient are better than random ones; the most confident ones we cannot tell from them."
)
_NEITHER = (
    "Nor can we show that the most confident heads, or those with the largest gradient, are better than random ones."
)


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
    cut = {
        left: {name: _mean(readings.cut(name, left)) for name in ("gates", "random", "free", "gradient", "confidence")}
        | {"whole": _mean({n: c.result["before"] for n, c in enumerate(cells.of(kind="after", left=left))})}
        for left in readings.left
    }
    encoder = [sum(map(len, c.result["kept"]["encoder"])) for c in cells.of(kind="gates")]
    better = claims.get("cut-gradient-over-chance")
    return {
        "as_read": all(id in claims and claims[id].verdict == verdict for id, verdict in _READ.items()),
        "cut": cut,
        "encoder": max(encoder, default=0),
        "signals": _GRADIENT if better is not None and better.verdict == "holds" else _NEITHER,
        "after_sizes": AFTER,
        "size": size,
        "left": readings.left,
        "shares": SHARES,
        "beaten": beaten,
        "after": after,
        "spread": spread,
        "roles": readings.roles,
    }


def _mean(values: Mapping[int, float]) -> float | None:
    return mean(values.values()) if values else None
