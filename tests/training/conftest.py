"""What the tests of training share."""

import pytest


@pytest.fixture(autouse=True)
def short_timing(monkeypatch):
    """No test asks how fast a pruned model is to three digits."""
    monkeypatch.setattr("lorgnette.training.pruning.speed.SECONDS", 0.05)
