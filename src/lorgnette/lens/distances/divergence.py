"""How far apart heads look: the Jensen–Shannon divergence of their rows, and a plane that shows it."""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from lorgnette.kernels import by_device


def smoothed(
    weights: Float[Tensor, "head query key"], visible: Bool[Tensor, "heads query key"], share: float
) -> Float[Tensor, "head query key"]:
    """(1 − share) α + share / n over the n keys that a row may see; the others stay at zero."""
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    return torch.add(share * even.to(weights.dtype), weights, alpha=1 - share)


def summed_jensen_shannon(rows: Float[Tensor, "head query key"]) -> Float64[Tensor, "head head"]:
    """JS of every two heads, summed over the queries: H(m) − H(a)/2 − H(b)/2, m the mean of both rows.

    Memory is three blocks of the size of `rows`: hand over as many queries as fit into the cache.
    """
    # Halved once, and never zero: what is left for each pair is a sum, a logarithm and a product.
    halves = rows.clamp(min=2 * torch.finfo(rows.dtype).tiny).div_(2).flatten(1)
    between = -math.log(2) * sums_of_pairs(halves).double().triu_()
    own = between.diagonal() / 2  # a head with itself: so two equal heads are exactly 0 apart
    apart = (between - own[:, None] - own).clamp_(min=0).triu_(1)
    return apart + apart.T


@by_device
def sums_of_pairs(halves: Float[Tensor, "head weight"]) -> Float[Tensor, "head head"]:
    """Σ m log₂ m over all weights, m the mean of those of heads a and b ≥ a; the other half stays empty."""
    heads = len(halves)
    means, logs = torch.empty_like(halves), torch.empty_like(halves)
    out = halves.new_empty(heads, heads)
    if not halves.is_cpu or halves.dtype == torch.bfloat16:  # which NumPy does not have
        for a in range(heads):
            mean = torch.add(halves[a:], halves[a], out=means[a:])
            out[a, a:] = torch.log2(mean, out=logs[a:]).mul_(mean).sum(-1)
        return out
    # NumPy's log2 takes a quarter of the time of torch's, and it multiplies and sums in one pass.
    half, middle, log, sums = (each.numpy() for each in (halves, means, logs, out))
    for a in range(heads):
        np.add(half[a:], half[a], out=middle[a:])
        np.log2(middle[a:], out=log[a:])
        np.vecdot(middle[a:], log[a:], out=sums[a, a:])
    return out


def metric_mds(distances: Float[np.ndarray, "thing thing"]) -> tuple[Float[np.ndarray, "thing 2"], float]:
    """Points in the plane whose distances come near the given ones, and their stress (0 a perfect map).

    Metric multidimensional scaling by SMACOF: minimises Σ_{a<b} (d_ab − ‖x_a − x_b‖)², starting from the classical
    solution; stress = √(that sum / Σ d_ab²) (Kruskal 1964). The map is centred, its first axis is the one along which
    the points spread most, and the point farthest along each axis lies on its positive side: so only mirror images and
    rotations that say nothing are taken out.

    What it does not tell you: the axes have no meaning, and with a high stress neither do small distances.
    """
    things = len(distances)
    points = np.zeros((things, 2))
    if things < 2 or not distances.any():
        return points, 0.0
    points = _turned(majorised(distances, classical_scaling(distances)))
    stress = float(np.sqrt(((_between(points) - distances) ** 2).sum() / (distances**2).sum()))
    return points, stress


def majorised(
    distances: Float[np.ndarray, "thing thing"], points: Float[np.ndarray, "thing 2"]
) -> Float[np.ndarray, "thing 2"]:
    """SMACOF: x ← B(x) x / n, which never raises Σ (d_ab − ‖x_a − x_b‖)² (Guttman 1968; de Leeuw 1977).

    B_ab = −d_ab / ‖x_a − x_b‖ for a ≠ b, and rows of B sum to zero. Ends when a step improves the sum by less than a
    millionth of Σ ‖x_a − x_b‖².
    """
    between, left = _between(points), np.inf
    for _ in range(1000):
        ratios = distances / np.where(between == 0, 1e-5, between)
        points = (ratios.sum(1, keepdims=True) * points - ratios @ points) / len(points)
        between, before = _between(points), left
        left = ((between - distances) ** 2).sum()
        if before - left < 1e-6 * (between**2).sum():
            break
    return points


def _between(points: Float[np.ndarray, "thing 2"]) -> Float[np.ndarray, "thing thing"]:
    across, along = (axis[:, None] - axis for axis in points.T)
    return np.sqrt(across * across + along * along)


def classical_scaling(distances: Float[np.ndarray, "thing thing"]) -> Float[np.ndarray, "thing 2"]:
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
