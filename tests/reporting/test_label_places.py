"""Names on the map of heads: none overlaps another name or a point, and none leaves the map."""

import numpy as np
import pytest

from lorgnette.figures.label_places import fitted, label_places

WIDTH, HEIGHT = 480, 360


def test_names_do_not_overlap():
    generator = np.random.default_rng(0)
    points = fitted([(float(x), float(y)) for x, y in generator.normal(size=(120, 2))], WIDTH, HEIGHT)
    names = [f"{i // 12 + 1}.{i % 12 + 1}" for i in range(120)]
    places = label_places(points, names, WIDTH, HEIGHT)
    boxes = [
        (x - 3.25 * len(n), y - 5.5, x + 3.25 * len(n), y + 5.5)
        for n, p in zip(names, places, strict=True)
        if p
        for x, y in [p]
    ]
    assert len(boxes) > 40
    for number, a in enumerate(boxes):
        assert min(a[0], a[1], WIDTH - a[2], HEIGHT - a[3]) >= 0
        for b in boxes[:number]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        for x, y in points:
            assert a[2] <= x - 4.5 or x + 4.5 <= a[0] or a[3] <= y - 4.5 or y + 4.5 <= a[1]


def test_points_keep_their_distances():
    points = [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0), (3.0, 1.0)]
    pixels = fitted(points, WIDTH, HEIGHT)
    ratios = [
        np.hypot(pixels[i][0] - pixels[j][0], pixels[i][1] - pixels[j][1])
        / np.hypot(points[i][0] - points[j][0], points[i][1] - points[j][1])
        for i in range(4)
        for j in range(i)
    ]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in pixels)


def test_equal_points_and_missing_names():
    assert fitted([(1.0, 1.0)], WIDTH, HEIGHT) == [(WIDTH / 2, HEIGHT / 2)]
    assert label_places([(100.0, 100.0)], [None], WIDTH, HEIGHT) == [None]
