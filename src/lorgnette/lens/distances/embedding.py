"""A flat map of things of which only the distances are known."""

import numpy as np
from jaxtyping import Float


def metric_mds(distances: Float[np.ndarray, "thing thing"]) -> tuple[Float[np.ndarray, "thing 2"], float]:
    """Points in the plane whose distances come near the given ones, and their stress (0 a perfect map).

    Metric multidimensional scaling by SMACOF: minimises Σ_{a<b} (d_ab − ‖x_a − x_b‖)², starting from the classical
    solution; stress = √(that sum / Σ d_ab²) (Kruskal 1964). The map is centred, its first axis is the one along which
    the points spread most, and the point farthest along each axis lies on its positive side: so only mirror images and
    rotations that say nothing are taken out.

    What it does not tell you: the axes have no meaning, and with a high stress neither do small distances.
    """
    from sklearn.manifold import smacof

    things = len(distances)
    points = np.zeros((things, 2))
    if things < 2 or not distances.any():
        return points, 0.0
    start = _classical(distances)
    placed, _ = smacof(distances, n_components=2, init=start, n_init=1, max_iter=1000, normalized_stress=False)
    points = _turned(placed)
    between = np.linalg.norm(points[:, None] - points[None], axis=-1)
    stress = float(np.sqrt(((between - distances) ** 2).sum() / (distances**2).sum()))
    return points, stress


def _classical(distances: Float[np.ndarray, "thing thing"]) -> Float[np.ndarray, "thing 2"]:
    """The plane that holds most of the scalar products which such distances would give (Torgerson 1952)."""
    squares = distances**2
    products = (squares.mean(0) + squares.mean(1)[:, None] - squares - squares.mean()) / 2
    values, vectors = np.linalg.eigh(products)
    return vectors[:, :-3:-1] * np.sqrt(values[:-3:-1].clip(min=0))


def _turned(points: Float[np.ndarray, "thing 2"]) -> Float[np.ndarray, "thing 2"]:
    """Centred, on its principal axes, with a fixed sign."""
    centred = points - points.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ directions.T
    farthest = turned[np.abs(turned).argmax(0), np.arange(2)]
    return turned * np.where(farthest < 0, -1.0, 1.0)
