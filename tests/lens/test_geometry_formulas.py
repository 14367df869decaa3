"""Cosines and isotropy against the papers' own steps, pair by pair in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lorgnette.errors import UserError
from lorgnette.lens.geometry.cosine import (
    ENERGY,
    SQUARES,
    SQUARES_ALL,
    UNITS_ALL,
    ZEROS,
    contributions,
    directions,
    intra_similarity,
    mean_pairwise_cosine,
    sim,
)
from lorgnette.lens.geometry.isotropy import (
    covariance,
    effective_rank,
    effective_rank_of,
    eigenvalues,
    first_component_share,
    gram,
    iso_score,
    mirrored,
    second_moment,
)


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def slow_sim(vectors):
    """2/(n(n−1)) Σ_{i<j} cos: every pair."""
    n = len(vectors)
    return 2 / (n * (n - 1)) * sum(cosine(vectors[i], vectors[j]) for i in range(n) for j in range(i))


def slow_intra(vectors):
    mean = vectors.mean(0)
    return sum(cosine(mean, x) for x in vectors) / len(vectors)


def slow_contributions(vectors):
    """Mean over pairs of what each dimension adds to their cosine (Timkey & van Schijndel 2021, eq. 3)."""
    n, units = len(vectors), vectors / vectors.norm(dim=-1, keepdim=True)
    pairs = [units[i] * units[j] for i in range(n) for j in range(n) if i != j]
    return torch.stack(pairs).mean(0)


def slow_iso_score(vectors):
    """The eight steps of Rudman et al. 2022, algorithm 1."""
    centred = vectors - vectors.mean(0)
    _, axes = torch.linalg.eigh(centred.T @ centred)
    turned = centred @ axes
    n = vectors.shape[1]
    variance = (turned * turned).sum(0) / (len(vectors) - 1)
    scaled = math.sqrt(n) * variance / variance.norm()
    defect = float((scaled - 1).norm()) / math.sqrt(2 * (n - math.sqrt(n)))
    used = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return (n * used - 1) / (n - 1)


def share_of(vectors):
    return first_component_share(torch.linalg.eigvalsh(gram(vectors)))


def slow_effective_rank(vectors):
    sigma = torch.linalg.svdvals(vectors)
    p = sigma / sigma.sum()
    return math.exp(-sum(float(x) * math.log(float(x)) for x in p if x > 0))


def cloud(seed=0, shape=(3, 7, 4, 5), lean=0.5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) + lean


LENGTHS = (7, 4, 2)


def mask():
    return torch.arange(7) < torch.tensor(LENGTHS)[:, None]


def test_directions_are_what_the_pairs_say():
    vectors = cloud()
    found = directions(vectors, mask())
    for text, n in enumerate(LENGTHS):
        real = vectors[text, :n]
        assert found.count[text].tolist() == [n] * 5
        for head in range(4):
            args = found.units[text, head], found.count[text, head]
            assert mean_pairwise_cosine(*args).item() == pytest.approx(slow_sim(real[:, head]), abs=1e-14)
            intra = intra_similarity(args[0], found.total[text, head], args[1])
            assert intra.item() == pytest.approx(slow_intra(real[:, head]), abs=1e-14)
        together = real.flatten(1)
        args = found.sums[UNITS_ALL][text].flatten(), found.count[text, -1]
        assert mean_pairwise_cosine(*args).item() == pytest.approx(slow_sim(together), abs=1e-14)
        assert found.counts[ENERGY][text, -1].item() == pytest.approx(float(together.square().sum()), rel=1e-14)


def test_contributions_sum_to_sim_and_are_those_of_the_pairs():
    vectors = cloud()
    found = directions(vectors, mask())
    everything = vectors[mask()]  # [item head dim]
    count = torch.tensor(float(len(everything)))
    for head in range(4):
        each = contributions(found.units[:, head].sum(0), found.sums[SQUARES][:, head].sum(0), count)
        assert torch.allclose(each, slow_contributions(everything[:, head]), atol=1e-14)
        assert float(each.sum()) == pytest.approx(slow_sim(everything[:, head]), abs=1e-14)
    each = contributions(found.sums[UNITS_ALL].sum(0).flatten(), found.sums[SQUARES_ALL].sum(0).flatten(), count)
    assert torch.allclose(each, slow_contributions(everything.flatten(1)), atol=1e-14)


def test_padding_and_vectors_without_a_direction_do_not_count():
    vectors = cloud()
    vectors[~mask()] = 1e9
    vectors[0, 2, 1] = 0.0
    found = directions(vectors, mask())
    assert found.counts[ZEROS][0].tolist() == [0, 1, 0, 0, 0]
    assert found.count[0].tolist() == [7, 6, 7, 7, 7]
    rest = vectors[0, [0, 1, 3, 4, 5, 6], 1]
    assert mean_pairwise_cosine(found.units[0, 1], found.count[0, 1]).item() == pytest.approx(slow_sim(rest), abs=1e-14)
    assert found.counts[ZEROS][1:].sum() == 0


def test_one_vector_has_no_pair():
    assert mean_pairwise_cosine(torch.ones(3), torch.tensor(1.0)).item() == 0.0
    with pytest.raises(UserError, match="at least two vectors"):
        sim(torch.ones(1, 3))
    with pytest.raises(UserError, match="1 of them have length zero"):
        sim(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 30), st.integers(2, 12), st.integers(0, 10**6))
def test_sim_is_the_mean_over_pairs(n, dim, seed):
    vectors = cloud(seed, (n, dim), lean=(seed % 5) / 2)
    assert sim(vectors) == pytest.approx(slow_sim(vectors), abs=1e-12)
    assert sim(vectors.float()) == pytest.approx(slow_sim(vectors), abs=2e-6)


def test_intra_similarity_of_equal_lengths_is_a_function_of_sim():
    vectors = torch.nn.functional.normalize(cloud(1, (9, 6)), dim=-1) * 3
    n = len(vectors)
    found = directions(vectors[None, :, None], torch.ones(1, n, dtype=torch.bool))
    intra = intra_similarity(found.units[0, 0], found.total[0, 0], found.count[0, 0]).item()
    assert intra == pytest.approx(math.sqrt(sim(vectors) * (1 - 1 / n) + 1 / n), abs=1e-14)


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.0, math.pi / 2])
def test_a_planted_cone_is_recovered(angle):
    """Pairs ±: vectors at this angle around an axis, in opposite pairs, so that the mean of û is cos(angle)·axis."""
    generator = torch.Generator().manual_seed(2)
    side = torch.nn.functional.normalize(torch.randn(500, 31, generator=generator, dtype=torch.float64), dim=-1)
    side = torch.cat([side, -side])
    axis = torch.full((1000, 1), math.cos(angle), dtype=torch.float64)
    vectors = torch.cat([axis, side * math.sin(angle)], -1) * (1 + torch.rand(1000, 1, generator=generator).double())
    n = 1000
    expected = (n * math.cos(angle) ** 2 - 1) / (n - 1)
    assert sim(vectors) == pytest.approx(expected, abs=1e-12)
    assert sim(vectors.float()) == pytest.approx(expected, abs=1e-6)


def test_iso_score_and_effective_rank_are_the_papers():
    for seed, shape in ((0, (40, 6)), (1, (9, 9)), (2, (5, 8))):
        vectors = cloud(seed, shape, lean=2.0) * torch.linspace(0.2, 3, shape[1], dtype=torch.float64)
        lower, total = second_moment(vectors)
        moment = mirrored(lower)
        assert torch.allclose(moment, vectors.T @ vectors, atol=1e-12)
        centred = covariance(moment, total, torch.tensor(float(len(vectors)), dtype=torch.float64))
        assert iso_score(centred).item() == pytest.approx(slow_iso_score(vectors), abs=1e-12)
        assert effective_rank(moment).item() == pytest.approx(slow_effective_rank(vectors), rel=1e-6)


@pytest.mark.parametrize("used", [1, 2, 5, 8])
def test_iso_score_when_some_dimensions_are_used_equally(used):
    n = 8
    vectors = torch.zeros(2 * used, n, dtype=torch.float64)
    for k in range(used):
        vectors[2 * k, k], vectors[2 * k + 1, k] = 1.0, -1.0
    turn = torch.linalg.qr(cloud(3, (n, n)))[0]
    lower, total = second_moment(vectors @ turn + 5)
    centred = covariance(mirrored(lower), total, torch.tensor(2.0 * used, dtype=torch.float64))
    assert iso_score(centred).item() == pytest.approx((used - 1) / (n - 1), abs=1e-12)
    assert effective_rank(centred).item() == pytest.approx(used, abs=1e-6)


def test_a_large_mean_does_not_drown_the_rest():
    vectors = (cloud(4, (300, 200), lean=0.0) + 100).float()
    lower, total = second_moment(vectors)
    centred = covariance(mirrored(lower), total, torch.tensor(300.0, dtype=torch.float64))
    real = torch.cov(vectors.double().T, correction=0)
    assert (centred - real).abs().max() < 2e-6
    naive = (vectors.T @ vectors).double() / 300 - torch.outer(total, total) / 300**2
    assert (naive - real).abs().max() > 1e-4  # what is avoided


def test_nothing_to_measure_is_nan_not_a_number():
    assert iso_score(torch.zeros(3, 3, dtype=torch.float64)).isnan()
    assert iso_score(torch.ones(1, 1, dtype=torch.float64)).isnan()
    assert effective_rank(torch.zeros(3, 3, dtype=torch.float64)).isnan()


def test_first_component_share():
    vectors = cloud(5, (3, 6, 9))
    for k in range(3):
        sigma = torch.linalg.svdvals(vectors[k])
        expected = float(sigma[0] ** 2 / (sigma**2).sum())
        assert share_of(vectors)[k].item() == pytest.approx(expected, rel=1e-12)
        assert share_of(vectors[k].T).item() == pytest.approx(expected, rel=1e-12)
    assert share_of(torch.ones(4, 3)).item() == pytest.approx(1.0)


def test_many_stacks_of_matrices_have_their_ranks():
    """Of several widths, by place and head, and of none at all."""
    make = torch.Generator().manual_seed(0)
    stacks = [
        torch.randn(*shape, dtype=torch.float64, generator=make) for shape in ((3, 2, 5, 5), (2, 1, 7, 7), (0, 4, 4))
    ]
    moments = [stack @ stack.mT for stack in stacks]
    for values, moment in zip(eigenvalues(moments), moments, strict=True):
        ranks = effective_rank_of(values)
        assert ranks.shape == moment.shape[:-2]
        for rank, matrix in zip(ranks.flatten(), moment.reshape(-1, *moment.shape[-2:]), strict=True):
            torch.testing.assert_close(rank, effective_rank(matrix))
