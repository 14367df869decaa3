"""In a circuit that copies from far away, the copying head needs the long context; in the control no head does."""

import random

import numpy as np
import pytest
from copying import copying, vocabulary
from scipy.stats import false_discovery_control, t

import lorgnette as lo
from lorgnette.reporting import figures_of, findings


def repeated():
    """Random words, then the same words again: what follows a word stands at least nine tokens before."""
    words = [word for word in vocabulary() if word.isalpha()]
    draw = random.Random(0)
    return [" ".join(2 * draw.sample(words, length)) for length in (10, 12, 11, 14, 10, 13)]


@pytest.mark.parametrize("control", [False, True])
def test_only_the_head_that_copies_from_far_away_needs_the_context(control):
    result = lo.look(copying(control=control), repeated(), ["context:sinks=1,windows=4,window=4"], progress=False)
    data = result["context"].data.sel(stack="decoder")
    change = data["loss_change"]
    p = 2 * t.sf(abs(change) / data["loss_change_se"].clip(1e-300), data["loss_change_count"] - 1)
    sure = (false_discovery_control(np.nan_to_num(p, nan=1.0).ravel()) < 0.05).reshape(p.shape)
    text = " ".join(each.text for each in findings(result))
    own = float(change.sel(layer=2, head=1))
    assert "shared_change" not in data
    excess = data["retrieval_excess"]
    p = 2 * t.sf(abs(excess) / data["retrieval_excess_se"].clip(1e-300), data["retrieval_excess_count"] - 1)
    retrieving = (false_discovery_control(np.nan_to_num(p, nan=1.0).ravel()) < 0.05).reshape(p.shape)
    if control:
        assert not (retrieving & (excess.values > 0)).any()
        assert "none of 4 heads has its largest weight on it significantly more often than chance (6 texts)" in text
        assert not (sure & (change.values > 0)).any()
        assert "for none of 4 heads (6 texts)" in text
        return
    assert own > 1
    assert own > 10 * float(change.where(change != own).max())
    assert float(data["far_mass"].sel(layer=2, head=1, window=4)) > 0.4
    assert float(data["far_mass"].sel(layer=1, head=1, window=4)) < 0.01  # the previous token is near
    assert float(change.sel(layer=1, head=1)) == pytest.approx(0, abs=1e-4)
    assert float(excess.sel(layer=2, head=1)) > 0.8
    assert float(excess.where(excess != excess.max()).max()) < 0.1
    assert "the largest excesses are those of 2.1 (" in text
    assert "the largest increases are those of 2.1 (" in text
    assert figures_of(result["context"])
