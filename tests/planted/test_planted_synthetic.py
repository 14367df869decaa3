"""Planted previous-token, duplicate-token and induction heads are found, the induction head retrieves; not so noise."""

import pytest
from copying import copying

from lorgnette.lens.synthetic.lens import Synthetic
from lorgnette.looking.look import look

OPTIONS = {"sequences": 8, "length": 12, "lengths": (40,), "depths": (0, 50, 100), "needles": 1}
PLANTED = {"previous": (1, 1), "duplicate": (1, 2), "induction": (2, 1), "retrieval": (2, 1)}


def numbers(subject):
    return look(subject, ["The baker painted the garden."], [Synthetic(**OPTIONS)], progress=False)["synthetic"].data


@pytest.fixture(scope="module")
def found():
    return numbers(copying()).sel(stack="decoder")


@pytest.mark.parametrize("test", PLANTED)
def test_the_planted_heads_are_found(found, test):
    layer, head = PLANTED[test]
    excess, q = found["excess"].sel(test=test), found["excess_q"].sel(test=test)
    assert float(excess.sel(layer=layer, head=head)) > 0.8
    if test != "retrieval":  # all trials are alike, so that there is no error
        assert float(q.sel(layer=layer, head=head)) < 0.05
    others = [float(excess.sel(layer=a, head=b)) for a in (1, 2) for b in (1, 2) if (a, b) != (layer, head)]
    assert max(others) < 0.2
    assert float(found["recall"].min()) == 1.0


def test_random_weights_have_no_such_head():
    control = numbers(copying(control=True)).sel(stack="decoder")
    for test in ("previous", "duplicate", "induction"):
        assert float(control["excess"].sel(test=test).max()) < 0.1
    assert float(control["recall"].max()) < 0.5
    assert int(control["score_count"].sel(test="retrieval").sum()) == 0
