"""In a planted induction circuit the prediction takes the edges from the previous-token head on, and no others."""

import numpy as np
import pytest
from copying import copying
from test_planted_composition import repeated

import lorgnette as lo
from lorgnette.reporting import findings

KEYS, OUT = "decoder 1-1 → decoder 2-1 key", "decoder 2-1 → logits"


def looked(subject):
    options = "edges:strongest=40,drawn=0"  # all of them
    return lo.look(subject, repeated(), [options], progress=False)["edges"]


def test_the_circuit_is_found_exactly_and_its_saturated_softmax_hides_it_from_the_gradient():
    result = looked(copying())
    exact = result.data["exact"].to_series()
    assert exact[KEYS] > 5
    assert exact[OUT] > 5
    assert exact.drop([KEYS, OUT]).abs().max() < 0.1 * exact[KEYS]
    assert exact["decoder 1-1 → decoder 2-1 query"] == pytest.approx(0, abs=1e-4)
    estimated = result.data["estimated"].to_series()
    assert abs(estimated[KEYS]) < 0.01 * exact[KEYS]  # the softmax of the induction head is saturated
    assert any("the attribution ranks the exact effects" in each.text for each in findings({"edges": result}))


def test_random_weights_have_no_such_edge():
    exact = looked(copying(control=True)).data["exact"].to_series()
    keys = exact[[name for name in exact.index if name.endswith("key")]]
    assert np.sort(keys.abs())[-1] < 5 * np.sort(keys.abs())[-2]
