"""Jensen–Shannon divergence against its definition, and the map of heads."""

import math

import numpy as np
import pytest
import torch

from lorgnette.lens.distances.divergence import metric_mds, smoothed, summed_jensen_shannon


def oracle_js(p, q):
    """½ KL(p ‖ m) + ½ KL(q ‖ m), m = (p + q)/2, term by term."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += (a * math.log(a / m) if a > 0 else 0.0) / 2 + (b * math.log(b / m) if b > 0 else 0.0) / 2
    return total


def some_rows(heads=5, queries=4, keys=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    rows = torch.softmax(3 * torch.randn(heads, queries, keys, generator=generator, dtype=torch.float64), -1)
    rows[0, :, 3:] = 0.0  # a head that never looks ahead
    return (rows / rows.sum(-1, keepdim=True)).to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_every_pair_is_the_definition(dtype, tolerance):
    rows = some_rows(dtype=dtype)
    for some in (*rows.split(1, dim=1), rows):  # one query after the other, and all of them
        found = summed_jensen_shannon(some)
        for a in range(5):
            for b in range(5):
                expected = sum(
                    oracle_js(one.tolist(), other.tolist()) for one, other in zip(some[a], some[b], strict=True)
                )
                assert found[a, b].item() == pytest.approx(expected, abs=tolerance)


def test_equal_heads_are_exactly_zero_apart():
    rows = some_rows(dtype=torch.float32)
    assert not summed_jensen_shannon(rows[[1, 1, 1]]).any()


def test_bounds():
    found = summed_jensen_shannon(torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]]))
    assert found.diagonal().tolist() == [0, 0]
    assert found[0, 1].item() == pytest.approx(math.log(2))


def test_smoothing_stays_a_distribution_over_the_visible_keys():
    rows = some_rows()
    visible = torch.ones(1, 4, 7, dtype=torch.bool).tril()
    rows = rows * visible
    rows = rows / rows.sum(-1, keepdim=True).clamp(min=1e-9)
    out = smoothed(rows, visible, 0.001)
    assert torch.allclose(out.sum(-1)[1:], torch.ones(4, 4, dtype=torch.float64), atol=1e-6)
    assert out[~visible.expand_as(out)].abs().max() == 0
    assert out[2, 3, 0].item() == pytest.approx(0.999 * rows[2, 3, 0].item() + 0.001 / 4)


def test_a_flat_map_is_found_and_does_not_depend_on_the_numbering():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found, stress = metric_mds(distances)
    again = np.linalg.norm(found[:, None] - found[None], axis=-1)
    assert stress < 0.02
    assert np.abs(again - distances).max() < 0.1
    order = rng.permutation(12)
    permuted, _ = metric_mds(distances[np.ix_(order, order)])
    assert np.allclose(permuted, found[order], atol=1e-9)


def test_the_map_is_at_a_minimum_of_the_stress():
    """Distances that fit into no plane: Σ (d − ‖x_a − x_b‖)² has no slope there, and SciPy finds nothing lower."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(1)
    points = rng.normal(size=(9, 5))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)

    def raw(flat):
        x = flat.reshape(-1, 2)
        return sum(
            (distances[a, b] - np.hypot(*(x[a] - x[b]))) ** 2 for a in range(len(x)) for b in range(a + 1, len(x))
        )

    found, stress = metric_mds(distances)
    assert stress == pytest.approx(np.sqrt(2 * raw(found.ravel()) / (distances**2).sum()), rel=1e-12)
    better = minimize(raw, found.ravel(), method="BFGS").fun
    others = min(minimize(raw, rng.normal(size=18), method="BFGS").fun for _ in range(4))
    assert raw(found.ravel()) <= 1.005 * better
    assert raw(found.ravel()) <= 1.02 * others


def test_the_map_is_that_of_sklearn_from_the_same_start():
    from sklearn.manifold import smacof

    from lorgnette.lens.distances.divergence import classical_scaling, majorised

    points = np.random.default_rng(2).normal(size=(15, 4))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    start = classical_scaling(distances)
    theirs, _ = smacof(distances, n_components=2, init=start.copy(), n_init=1, max_iter=1000, normalized_stress=False)
    assert np.allclose(majorised(distances, start), theirs, rtol=0, atol=1e-12)


def test_heads_that_are_all_the_same_lie_on_one_point():
    found, stress = metric_mds(np.zeros((3, 3)))
    assert stress == 0
    assert not found.any()
