"""Checksums of weights see every change, on whatever device they were taken."""

import pytest
import torch
from torch import nn

from lorgnette.models.checksums import CRC, MIXED, checksums


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).to(dtype)


def mixed(made):
    """The sums that a GPU would give."""
    return checksums(made, dict.fromkeys(made.state_dict(), (MIXED, 0)))


@pytest.mark.parametrize("take", [checksums, mixed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_any_change_is_seen(take, dtype):
    made = model(dtype)
    before = take(made)
    assert take(model(dtype)) == before
    weight = made[0].weight.detach()
    for change in (
        lambda: weight[3, 2].mul_(-1),
        lambda: weight[4, 4].add_(2**-7),
        lambda: weight.copy_(weight.flip(0)),  # the same numbers in other places
        lambda: weight[:2].copy_(weight[:2].flip(0)),
    ):
        made.load_state_dict(model(dtype).state_dict())
        assert take(made) == before
        change()
        assert take(made) != before


def test_words_beyond_one_chunk_have_keys_of_their_own(monkeypatch):
    monkeypatch.setattr("lorgnette.models.checksums._CHUNK", 4)
    made = model()
    before = mixed(made)
    weight = made[0].weight.detach().flatten()
    first, second = weight[:8].clone(), weight[8:16].clone()  # four words of eight bytes each
    weight[:8], weight[8:16] = second, first
    assert mixed(made) != before


def test_the_kind_is_that_of_the_device_unless_another_is_asked_for():
    made = model()
    assert {kind for kind, _ in checksums(made).values()} == {CRC}
    assert {kind for kind, _ in mixed(made).values()} == {MIXED}
    assert mixed(made) == checksums(made, mixed(made))
