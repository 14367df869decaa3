"""What `check` must not let pass."""

import torch
from tiny import tiny_model, tokenizer

from lorgnette.subject import Subject
from lorgnette.subject.checks import _largest, check


def exact(family):
    return Subject(tiny_model(family, dtype=torch.float64), tokenizer(family))


def test_float64_is_exact_where_transformers_takes_a_root_in_float32():
    checks = {one.name: one for one in check(exact("deberta-v2"))}
    assert all(one.ok for one in checks.values())
    assert float(checks["outputs unchanged"].detail.split()[-1]) < 1e-13


def test_a_model_whose_own_outputs_are_no_numbers_says_so():
    """Gemma-2 in transformers gives NaN on padded batches in float64."""
    watched = exact("bert-classifier")
    with torch.no_grad():
        watched.model.bert.encoder.layer[1].output.dense.bias.fill_(torch.nan)
    (only,) = check(watched)
    assert not only.ok
    assert "in float64" in only.detail


def test_what_is_not_a_number_is_no_small_difference():
    assert _largest(torch.tensor([0.0, torch.nan])) == float("inf")
    assert _largest(torch.tensor([-2.0, 1.0])) == 2.0
    assert _largest(torch.zeros(0)) == 0.0
