"""A flat map of things of which only the distances are known."""

import numpy as np
from jaxtyping import Float


def metric_mds(
    distances: Float[np.ndarray, "thing thing"], seed: int = 0, starts: int = 5
) -> tuple[Float[np.ndarray, "thing 2"], float]:
    """Points in the plane whose distances come near the given ones, and their stress (0 a perfect map).

    Metric multidimensional scaling by SMACOF: minimises Σ_{a<b} (d_ab − ‖x_a − x_b‖)² from several random starts, of
    which the best counts; stress = √(that sum / Σ d_ab²) (Kruskal 1964). The map is centred, its first axis is the one
    along which the points spread most, and the point farthest along each axis lies on its positive side: so only
    mirror images and rotations that say nothing are taken out.

    What it does not tell you: the axes have no meaning, and with a high stress neither do small distances.
    """
    from sklearn.manifold import smacof

    things = len(distances)
    points = np.zeros((things, 2))
    if things < 2 or not distances.any():
        return points, 0.0
    # The random starts go by how far out a thing lies, so that the map does not depend on how the things are numbered.
    order = np.argsort(distances.mean(1), kind="stable")
    placed, _ = smacof(
        distances[np.ix_(order, order)],
        n_components=2,
        n_init=starts,
        max_iter=1000,
        random_state=seed,
        normalized_stress=False,
    )
    points[order] = _turned(placed)
    between = np.linalg.norm(points[:, None] - points[None], axis=-1)
    stress = float(np.sqrt(((between - distances) ** 2).sum() / (distances**2).sum()))
    return points, stress


def _turned(points: Float[np.ndarray, "thing 2"]) -> Float[np.ndarray, "thing 2"]:
    """Centred, on its principal axes, with a fixed sign."""
    centred = points - points.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ directions.T
    farthest = turned[np.abs(turned).argmax(0), np.arange(2)]
    return turned * np.where(farthest < 0, -1.0, 1.0)
