"""Faithfulness against loops written from the paper."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from lorgnette.lens.rationales.faithfulness import SHARES, aopc, deleted, masked, packed, predicted_drop, top_tokens

PADDING = 0


def texts(seed: int, batch: int = 5, width: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids, mask, scores with ties, and which tokens may be chosen (not the first)."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (batch,), generator=dice)
    mask = torch.arange(width) < lengths[:, None]
    ids = torch.randint(1, 50, (batch, width), generator=dice).masked_fill(~mask, PADDING)
    scores = torch.randint(0, 4, (batch, width), generator=dice).double()
    among = mask.clone()
    among[:, 0] = False
    return ids, mask, scores, among


def oracle_top(scores: list[float], among: list[bool], share: float) -> list[bool]:
    members = [place for place, flag in enumerate(among) if flag]
    count = math.ceil(len(members) * round(share * 100) / 100 - 1e-12)
    members.sort(key=lambda place: (-scores[place], place))
    chosen = set(members[:count])
    return [place in chosen for place in range(len(scores))]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from(SHARES))
def test_top_tokens_and_deletion_are_those_of_a_loop(seed: int, share: float) -> None:
    ids, mask, scores, among = texts(seed)
    gone = top_tokens(scores, among, share)
    new_ids, new_mask = deleted(ids, mask, gone, PADDING)
    kept_only, only_mask = deleted(ids, mask, among & ~gone, PADDING)
    for row in range(len(ids)):
        expected = oracle_top(scores[row].tolist(), among[row].tolist(), share)
        assert gone[row].tolist() == expected
        rest = [i for i, here, out in zip(ids[row].tolist(), mask[row].tolist(), expected, strict=True) if here > out]
        assert new_ids[row][new_mask[row]].tolist() == rest
        assert bool((new_ids[row][~new_mask[row]] == PADDING).all())
        assert int(only_mask[row].sum()) == 1 + sum(expected)  # the first token is never taken away
        assert kept_only[row, 0] == ids[row, 0]
    assert new_ids.shape[1] == int(new_mask.sum(-1).max())


def test_a_share_of_ten_percent_of_seventy_is_seven() -> None:
    scores = torch.rand(1, 70, dtype=torch.float64)
    assert int(top_tokens(scores, torch.ones(1, 70, dtype=torch.bool), 0.1).sum()) == 7


def test_at_least_one_token_is_taken_unless_there_is_none() -> None:
    scores = torch.zeros(2, 3)
    among = torch.tensor([[False, True, True], [False, False, False]])
    assert top_tokens(scores, among, 0.01).tolist() == [[False, True, False], [False, False, False]]


def test_masking_keeps_positions_and_packing_works_on_any_row() -> None:
    ids = torch.tensor([[2, 7, 8, 9]])
    gone = torch.tensor([[False, True, False, True]])
    assert masked(ids, gone, 1).tolist() == [[2, 1, 8, 1]]
    assert packed(torch.tensor([[0, 0, 1, 1]]), ~gone, 0).tolist() == [[0, 1]]


def test_drops_are_those_of_the_class_predicted_before() -> None:
    whole = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)
    without = torch.tensor([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7]], dtype=torch.float64)
    drop = predicted_drop(whole, without)
    assert drop.tolist() == pytest.approx([0.6, -0.1])
    assert aopc(torch.stack([drop, torch.zeros(2, dtype=torch.float64)])).tolist() == pytest.approx([0.3, -0.05])


def test_a_planted_model_needs_the_token_that_it_reads() -> None:
    """P(class 1) = 0.9 if token 7 is there, else 0.2: scores that point to it are faithful, others are not."""
    ids = torch.tensor([[2, 5, 7, 6, 9], [2, 7, 5, 5, 0]])
    mask = ids != PADDING
    among = mask & (torch.arange(5) > 0)

    def model(some: torch.Tensor) -> torch.Tensor:
        first = torch.where((some == 7).any(-1), 0.9, 0.2)
        return torch.stack([1 - first, first], -1)

    for scores, needed in (((ids == 7).double(), 0.7), ((ids == 5).double(), 0.0)):
        gone = top_tokens(scores, among, 0.01)
        without = model(deleted(ids, mask, gone, PADDING)[0])
        alone = model(deleted(ids, mask, among & ~gone, PADDING)[0])
        assert predicted_drop(model(ids), without).tolist() == pytest.approx([needed] * 2)
        assert predicted_drop(model(ids), alone).tolist() == pytest.approx([0.7 - needed] * 2)
