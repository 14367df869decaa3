"""Bounds on the largest cosine, against configurations that reach them and random ones that must not beat them."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from lorgnette.errors import UserError
from reproductions.fosse2023.classes.bounds import (
    cap_radius,
    least_largest_absolute_cosine,
    least_largest_cosine,
    most_vectors,
)


def off_diagonal(vectors: torch.Tensor) -> torch.Tensor:
    units = vectors.double() / vectors.double().norm(dim=-1, keepdim=True)
    cosines = units @ units.T
    return cosines[~torch.eye(len(units), dtype=torch.bool)]


@pytest.mark.parametrize("dim", [2, 3, 7, 16])
def test_a_simplex_reaches_the_bound_up_to_one_more_vector_than_dimensions(dim: int) -> None:
    for vectors in range(2, dim + 2):
        corners = torch.eye(vectors, dtype=torch.float64) - 1 / vectors  # lie in C − 1 ≤ d dimensions
        assert off_diagonal(corners).max().item() == pytest.approx(least_largest_cosine(vectors, dim), abs=1e-12)


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_the_axes_and_their_opposites_reach_zero(dim: int) -> None:
    axes = torch.cat([torch.eye(dim), -torch.eye(dim)])
    assert off_diagonal(axes).max().item() == 0.0
    for vectors in range(dim + 2, 2 * dim + 1):
        assert least_largest_cosine(vectors, dim) == 0.0


@pytest.mark.parametrize("vectors", [5, 6, 11, 100])
def test_in_the_plane_the_bound_is_the_regular_polygon(vectors: int) -> None:
    angle = torch.arange(vectors, dtype=torch.float64) * 2 * math.pi / vectors
    polygon = torch.stack([angle.cos(), angle.sin()], -1)
    assert off_diagonal(polygon).max().item() == pytest.approx(least_largest_cosine(vectors, 2), abs=1e-12)


def test_the_half_cube_reaches_levenshteins_bound() -> None:
    """The 16 corners of the 5-cube with an even number of minus signs: cosines 1/5 and −3/5."""
    corners = torch.tensor([signs for signs in product((1.0, -1.0), repeat=5) if signs.count(-1.0) % 2 == 0])
    assert off_diagonal(corners).max().item() == pytest.approx(least_largest_cosine(16, 5), abs=1e-9) == 0.2


@pytest.mark.parametrize(("dim", "vectors", "cosine"), [(22, 100, 1 / 11), (21, 162, 1 / 7), (5, 16, 1 / 5)])
def test_known_arrangements_reach_levenshteins_bound(dim: int, vectors: int, cosine: float) -> None:
    """Strongly regular graphs give them (Higman–Sims: 100 vectors in 22 dimensions)."""
    assert most_vectors(cosine, dim) == pytest.approx(vectors)
    assert least_largest_cosine(vectors, dim) == pytest.approx(cosine, abs=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 7, 15, 99])
def test_levenshteins_polynomial_has_no_negative_coefficient(dim: int) -> None:
    """f(t) = (t−s)(t+b)² in Gegenbauer polynomials: what makes the bound a bound."""
    for s in np.linspace(0.0, (math.sqrt(dim + 3) - 1) / (dim + 2), 7):
        b = (1 + s) / (1 + dim * s)
        # t² = 1/d + P₂-part, t³ = 3t/(d+2) + P₃-part; both parts have positive coefficients.
        constant = (2 * b - s) / dim - b * b * s
        assert constant > 0
        assert 3 / (dim + 2) + b * b - 2 * b * s >= 0
        assert 2 * b - s >= 0
        assert (1 - s) * (1 + b) ** 2 / constant == pytest.approx(most_vectors(s, dim))


def test_more_vectors_never_lower_the_bound() -> None:
    for dim in (1, 2, 5, 31):
        found = [least_largest_cosine(vectors, dim) for vectors in range(2, 600)]
        assert all(low <= high + 1e-12 for low, high in pairwise(found))


def test_welch_bounds_absolute_cosines_and_not_signed_ones() -> None:
    angle = torch.arange(5, dtype=torch.float64) * 2 * math.pi / 5
    pentagon = torch.stack([angle.cos(), angle.sin()], -1)
    welch = least_largest_absolute_cosine(5, 2)
    assert off_diagonal(pentagon).max() < welch < off_diagonal(pentagon).abs().max()
    # Three lines 60° apart reach it.
    lines = torch.tensor([[math.cos(a), math.sin(a)] for a in (0.0, math.pi / 3, 2 * math.pi / 3)])
    assert off_diagonal(lines).abs().max().item() == pytest.approx(least_largest_absolute_cosine(3, 2), abs=1e-6)
    # So do the six diagonals of the icosahedron.
    golden = (1 + 5**0.5) / 2
    rows = [(0, 1, golden), (0, 1, -golden), (1, golden, 0), (1, -golden, 0), (golden, 0, 1), (-golden, 0, 1)]
    found = off_diagonal(torch.tensor(rows, dtype=torch.float64)).abs().max().item()
    assert found == pytest.approx(least_largest_absolute_cosine(6, 3), abs=1e-12) == pytest.approx(5**-0.5)


@pytest.mark.parametrize("dim", [2, 3, 8, 31])
@pytest.mark.parametrize("vectors", [2, 5, 9, 17, 64, 300])
def test_random_vectors_never_beat_a_bound(vectors: int, dim: int) -> None:
    draw = torch.Generator().manual_seed(vectors * dim)
    for _ in range(5):
        found = off_diagonal(torch.randn(vectors, dim, generator=draw, dtype=torch.float64))
        assert found.max() >= least_largest_cosine(vectors, dim) - 1e-12
        assert found.abs().max() >= least_largest_absolute_cosine(vectors, dim) - 1e-12


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_the_share_of_a_cap_is_the_share_of_random_points_in_it(dim: int) -> None:
    points = np.random.default_rng(0).standard_normal((200_000, dim))
    first = points[:, 0] / np.linalg.norm(points, axis=1)
    for share in (0.5, 0.2, 0.05):
        assert (first > math.cos(cap_radius(share, dim))).mean() == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize(("vectors", "dim"), [(1, 3), (4, 0)])
def test_less_than_two_vectors_or_no_dimension_is_refused(vectors: int, dim: int) -> None:
    for bound in (least_largest_cosine, least_largest_absolute_cosine):
        with pytest.raises(UserError, match="at least two vectors"):
            bound(vectors, dim)
    with pytest.raises(UserError, match="A cap needs"):
        cap_radius(0.7, 3)
