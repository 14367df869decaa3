"""Rank correlations of many rows at once, against SciPy's."""

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr

from lorgnette.statistics.spearman import ranks, rounded, spearman_by_row


def rows(bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(bits)
    one = torch.randn(4, 300, generator=make, dtype=torch.float64)
    other = 0.5 * one + torch.randn(4, 300, generator=make, dtype=torch.float64)
    return rounded(one, bits), rounded(other, bits)  # few bits, many ties


def whole(one: torch.Tensor) -> torch.Tensor:
    return torch.full(one.shape[:-1], one.shape[-1])


def test_equal_items_share_the_mean_of_their_ranks():
    for bits in (2, 16):
        one, _ = rows(bits)
        np.testing.assert_array_equal(ranks(one, whole(one)), rankdata(one.numpy(), axis=-1))


def test_every_row_is_spearmans_rho():
    for bits in (2, 16):
        one, other = rows(bits)
        exact = [spearmanr(a, b).statistic for a, b in zip(one.numpy(), other.numpy(), strict=True)]
        np.testing.assert_allclose(spearman_by_row(one, other, whole(one)), exact, atol=1e-12)


def test_a_constant_row_has_no_correlation():
    one, other = rows(16)
    one[1] = 3.0
    assert spearman_by_row(one, other, whole(one)).isnan().tolist() == [False, True, False, False]


def test_what_is_behind_the_count_does_not_count():
    for bits in (2, 16):
        one, other = rows(bits)
        count = torch.tensor([300, 40, 1, 0])
        one[0, 7] = torch.inf
        one[1, 8] = torch.inf
        found = spearman_by_row(one, other, count)
        assert found.isnan().tolist() == [False, False, True, True]
        for row in range(2):
            mine, theirs = one[row : row + 1, : count[row]], other[row : row + 1, : count[row]]
            assert torch.equal(found[row : row + 1], spearman_by_row(mine, theirs, whole(mine)))
            exact = spearmanr(rankdata(mine[0]), rankdata(theirs[0])).statistic
            np.testing.assert_allclose(found[row], exact, atol=1e-12)
