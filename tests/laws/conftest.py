"""What the laws share."""

import pytest


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """No law needs a probe that is trained to the end."""
    monkeypatch.setattr("lorgnette.lens.probes.probe.LEAST_STEPS", 20)
