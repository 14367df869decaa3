"""Points on a map, and where their names go, so that no two of them overlap."""

from collections.abc import Sequence

import numpy as np

Point = tuple[float, float]
Box = tuple[float, float, float, float]

_LETTER, _LINE, _POINT = 6.5, 11.0, 4.5
"""Width and height of a letter of 10 px, and the radius of a point, in pixels."""


def fitted(points: Sequence[Point], width: int, height: int) -> list[Point]:
    """Points in pixels, y downwards; one scale for both axes, so that distances on the map can be compared."""
    at = np.array(points, float)
    at -= (at.max(0) + at.min(0)) / 2
    across, down = np.ptp(at, axis=0)
    span = 1.1 * float(max(across, down * width / height)) or 1.0
    return [(width / 2 + float(x) * width / span, height / 2 - float(y) * width / span) for x, y in at]


def label_places(points: Sequence[Point], names: Sequence[str | None], width: int, height: int) -> list[Point | None]:
    """The centre of each name, in pixels: above its point, below, right or left of it; None where all are taken.

    Greedy in the order of the points. `points` are in pixels; a name of None is not placed.
    """
    taken: list[Box] = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in points]
    places: list[Point | None] = []
    for (x, y), name in zip(points, names, strict=True):
        places.append(None)
        half = _LETTER * len(name or "") / 2
        up, aside = _POINT + _LINE / 2 + 0.5, _POINT + half + 1.5
        for dx, dy in ((0.0, -up), (0.0, up), (aside, 0.0), (-aside, 0.0)) if name else ():
            box = (x + dx - half, y + dy - _LINE / 2, x + dx + half, y + dy + _LINE / 2)
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height
            if inside and not any(_overlap(box, other) for other in taken):
                places[-1] = (x + dx, y + dy)
                taken.append(box)
                break
    return places


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
