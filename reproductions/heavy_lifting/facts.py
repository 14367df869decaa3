"""What the prose needs to know."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.heavy_lifting.claims import steps
from reproductions.heavy_lifting.grid import AFTER, FULL, QUICK
from reproductions.heavy_lifting.readings import SHARES, Readings

_READ = {
    "third-loses-little": "cannot tell",
    "sixth-loses-little": "does not hold",
    "layers-24": "holds",
    "layers-12": "cannot tell",
    "cut-24": "cannot tell",
    "cut-12": "cannot tell",
    "chance-24": "cannot tell",
    "chance-12": "cannot tell",
    "as-trained-24": "cannot tell",
    "as-trained-12": "cannot tell",
    "place-24": "cannot tell",
    "place-12": "cannot tell",
    "gates-over-confidence": "cannot tell",
    "gates-over-gradient": "cannot tell",
    "confidence-over-chance": "cannot tell",
    "gradient-over-chance": "cannot tell",
    "trained-over-scratch-24": "cannot tell",
    "trained-over-scratch-12": "cannot tell",
    "roles-needed": "cannot tell",
}
"""The verdicts for which the discussion was written."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    readings = Readings(cells)
    size = QUICK if cells.settings.quick else FULL
    cut = {
        left: {name: _mean(readings.cut(name, left)) for name in ("gates", "random", "free")}
        | {"whole": _mean({n: c.result["before"] for n, c in enumerate(cells.of(kind="after", left=left))})}
        for left in readings.left
    }
    encoder = [sum(map(len, c.result["kept"]["encoder"])) for c in cells.of(kind="gates")]
    return {
        "as_read": all(id in claims and claims[id].verdict == verdict for id, verdict in _READ.items()),
        "cut": cut,
        "encoder": max(encoder, default=0),
        "after_sizes": AFTER,
        "size": size,
        "steps": steps(readings),
        "left": readings.left,
        "shares": SHARES,
        "beaten": {name: {n: readings.beaten(name, n) for n in readings.left} for name in ("own", "gates")},
        "after": {n: readings.beaten_after(n) for n in readings.left},
        "sharp": {n: _average(readings.over("gates", "confidence", n)) for n in readings.left},
        "lost": {n: _average(readings.lost(n, "random")) for n in readings.left},
        "scratch": {n: _average(readings.lost(n, "scratch")) for n in readings.left},
    }


def _mean(values: Mapping[int, float]) -> float | None:
    return _average(list(values.values()))


def _average(values: list[float]) -> float | None:
    return mean(values) if values else None
