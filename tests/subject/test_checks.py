"""What `check` must not let pass."""

import torch

from lorgnette.subject.checks import _largest


def test_what_is_not_a_number_is_no_small_difference():
    assert _largest(torch.tensor([0.0, torch.nan])) == float("inf")
    assert _largest(torch.tensor([-2.0, 1.0])) == 2.0
    assert _largest(torch.zeros(0)) == 0.0
