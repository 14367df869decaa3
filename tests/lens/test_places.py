"""Cells laid out by stack and layer, states that start as few numbers, and sizes that are kept for a model."""

import gc

import numpy as np
import torch
from tiny import EXAMPLES, bert

from lorgnette.attending import Site
from lorgnette.lens import hidden_states
from lorgnette.lens.geometry.lens import Geometry
from lorgnette.lens.hidden_states import VectorSizes
from lorgnette.lens.places import Places
from lorgnette.lens.states import filled, zeros
from lorgnette.lens.weights.lens import Weights
from lorgnette.testing import run_lens

SITES = (Site("encoder", "self", 0), Site("encoder", "self", 1), Site("decoder", "self", 0))


def test_removed_heads_and_sites_that_a_stack_has_not_are_missing():
    places = Places(SITES, 3, {SITES[0]: (0, 2), SITES[1]: (0, 1, 2)}, together=1)
    cells = np.arange(2 * 3 * 4, dtype=float).reshape(2, 3, 4)  # [lead site head-or-all]
    out = places.laid_out(cells, lead=1)
    assert out.shape == (2, 2, 2, 4)
    np.testing.assert_array_equal(out[1, 0, 0], [12, np.nan, 13, 15])
    np.testing.assert_array_equal(out[1, 0, 1], [16, 17, 18, 19])
    np.testing.assert_array_equal(out[0, 1, 0], [8, 9, 10, 11])
    assert np.isnan(out[:, 1, 1]).all()
    grid = places.grid(torch.from_numpy(cells[0]))
    np.testing.assert_array_equal(grid.values, out[0])
    assert grid.coords["stack"].values.tolist() == ["encoder", "decoder"]
    assert grid.coords["head"].values.tolist() == [1, 2, 3, 4]


def test_a_start_that_repeats_is_kept_small_and_copied_whole():
    start = torch.tensor([torch.inf, 0.0])[:, None].expand(2, 1000)
    state = filled(start, torch.device("cpu"))
    assert state.is_contiguous()
    assert torch.equal(state, start)
    assert zeros(1000, 1000).untyped_storage().nbytes() == 8


def test_a_state_starts_again_after_reset():
    lens = Weights()
    lens.sums("total", 3, 4)
    lens.state("least", torch.tensor(torch.inf).expand(2, 2), "min")
    lens.total += 1
    lens.least[0] = 5
    lens.reset()
    lens.total[0] += 1
    assert lens.total.sum() == 4
    assert lens.least.isinf().all()


def test_compute_leaves_the_states_as_they_are():
    lens = run_lens(Geometry(), bert(), [bert().encode(list(EXAMPLES))])
    before = lens.states.tensors()
    lens.compute()
    assert all(getattr(lens, name) is state for name, state in before.items())


def test_sizes_are_kept_while_a_model_has_the_same_sites(monkeypatch):
    subject, passes = bert(), []
    monkeypatch.setattr(VectorSizes, "_seen", staticmethod(lambda subject: passes.append(1) or len(passes)))
    assert VectorSizes.of(subject) == VectorSizes.of(subject) == 1
    replaced = subject.anatomy.sites[0]
    monkeypatch.setitem(vars(replaced), "numbers", (0,))
    assert VectorSizes.of(subject) == 2
    kept = len(hidden_states._KNOWN)
    del subject, replaced
    monkeypatch.undo()
    gc.collect()
    assert len(hidden_states._KNOWN) < kept
