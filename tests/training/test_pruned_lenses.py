"""Looking at a pruned model: heads keep their numbers, removed ones are missing, and the numbers are those of gates."""

import numpy as np
import pytest
import torch
from tiny import examples, subject

from lorgnette.attending import Site
from lorgnette.lens import get
from lorgnette.looking.look import look
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.pruning.removal import remove_heads

KEPT = {Site("encoder", "self", 0): [1, 3], Site("encoder", "self", 1): [], Site("encoder", "self", 2): [0, 1, 2, 3]}


def pair(family="bert"):
    """The whole model with gates at zero, and the one without those heads."""
    whole = subject(family)
    gates = HeadGates.of(whole).eval()
    with torch.no_grad():
        for site, place in gates.place.items():
            gates.log_alpha[place] = torch.tensor([5.0 if n in KEPT[site] else -5.0 for n in gates.heads[site]])
    return whole, gates, remove_heads(whole, KEPT)


@pytest.mark.parametrize("lens", ["weights", "norms", "geometry", "convexity"])
def test_heads_keep_their_numbers(lens):
    whole, gates, small = pair()
    texts = examples()
    with whole.tapped(gates):
        expected = look(whole, texts, [get(lens)])[lens].data
    found = look(small, texts, [get(lens)])[lens].data
    assert found["head"].values.tolist() == [1, 2, 3, 4]
    compared = 0
    for name, array in found.data_vars.items():
        if (
            array.dims[:3] != ("stack", "layer", "head")
            or name.endswith(("_se", "_count", "_q"))
            or array.dtype.kind != "f"
        ):
            continue
        for layer, heads in ((1, (2, 4)), (3, (1, 2, 3, 4))):
            for head in heads:
                cell = {"stack": "encoder", "layer": layer, "head": head}
                np.testing.assert_allclose(
                    array.sel(cell), expected[name].sel(cell), rtol=1e-6, atol=1e-9, err_msg=name
                )
                compared += 1
        for layer, head in ((1, 1), (1, 3), (2, 1), (2, 4)):
            assert np.isnan(array.sel(stack="encoder", layer=layer, head=head)).all(), name
        if f"{name}_count" in found:
            count = found[f"{name}_count"].sel(stack="encoder")
            assert (count.sel(layer=2) == 0).all()
            assert (count.sel(layer=1, head=[1, 3]) == 0).all()
            assert (count.sel(layer=1, head=[2, 4]) > 0).all()
    assert compared


def test_distances_between_heads_keep_their_numbers():
    whole, gates, small = pair()
    with whole.tapped(gates):
        expected = look(whole, examples(), [get("distances")])["distances"].data.divergence.sel(stack="encoder")
    found = look(small, examples(), [get("distances")])["distances"].data.divergence.sel(stack="encoder")
    left = ["1-2", "1-4", "3-1", "3-2", "3-3", "3-4"]
    here = dict.fromkeys(found.dims, left)
    np.testing.assert_allclose(found.sel(here), expected.sel(here), rtol=1e-6, atol=1e-9)
    assert np.isnan(found.sel({found.dims[0]: ["1-1", "1-3", "2-1"]})).all()


def test_the_checks_hold_on_a_pruned_model():
    _, _, small = pair()
    assert [check.name for check in small.check() if not check.ok] == []
    assert "PrunedBert" in repr(small)


def test_a_trace_of_a_pruned_model_has_gaps():
    _, _, small = pair()
    seen = small.trace("w7 w8 . w9")
    weights = seen.data()
    assert weights.dims == ("layer", "head", "query", "key")
    assert weights.sizes["head"] == 4
    assert np.isnan(weights.sel(layer=1, head=[1, 3])).all()
    assert np.isnan(weights.sel(layer=2)).all()
    np.testing.assert_allclose(weights.sel(layer=1, head=4), seen["encoder.1.weights"][1], rtol=1e-5)
    np.testing.assert_allclose(weights.sel(layer=3).sum("key"), 1.0, rtol=1e-5)
