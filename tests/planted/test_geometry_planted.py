"""Geometry planted in a model: cones of values at a known angle, a rogue dimension, and isotropic controls."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import BERT, EXAMPLES, WORDS, loud, word_pieces
from transformers import BertConfig, BertModel

from lorgnette.lens.convexity.lens import Convexity
from lorgnette.lens.geometry.lens import Geometry
from lorgnette.subject import Subject
from lorgnette.testing import run_lens
from lorgnette.texts.example import Example

LAYER = 1  # whose input is a LayerNorm's output: every state has length √d and no mean


def one_head(seed=0):
    torch.manual_seed(seed)
    config = BertConfig(**{**BERT, "num_attention_heads": 1}, layer_norm_eps=1e-14)
    model = loud(BertModel, config, seed, add_pooling_layer=False).double()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.normal_()  # far above the epsilon of the norm
        for layer in model.encoder.layer:
            for norm in (layer.attention.output.LayerNorm, layer.output.LayerNorm):
                norm.weight.fill_(1.0), norm.bias.zero_()
    return Subject(model, word_pieces(), name="one head")


def cone_of_values(theta, sharp=0.0):
    """All values at the angle θ with one axis: v = W x + b, W turns the states away from the axis, b lies along it."""
    subject = one_head()
    attention = subject.model.encoder.layer[LAYER].attention.self
    d = attention.value.weight.shape[0]
    first = torch.eye(d, dtype=torch.float64)
    first[:, 0] = 1.0  # the direction that no state has
    turn = torch.linalg.qr(first)[0]
    with torch.no_grad():
        attention.value.weight.copy_(turn.T)  # component 0 of W x is zero
        attention.value.bias.zero_()
        attention.value.bias[0] = math.sqrt(d) / math.tan(theta)
        if sharp:
            attention.query.weight *= sharp
    return subject


@pytest.mark.parametrize("theta", [0.1, 0.7, 1.3])
def test_sim_of_values_in_a_cone_follows_from_the_angle(theta):
    """cos(v_i, v_j) = cos²θ + sin²θ cos(x_i, x_j), so SIM of values is that of states, squeezed."""
    subject = cone_of_values(theta)
    data = (
        run_lens(Geometry(words=False), subject, [subject.encode(list(EXAMPLES))]).compute().data.sel(stack="encoder")
    )
    states = data.state_sim.sel(state=LAYER).item()
    values = data.sim.sel(layer=LAYER + 1, head=1, vectors="value").item()
    assert values == pytest.approx(math.cos(theta) ** 2 + math.sin(theta) ** 2 * states, abs=1e-6)
    assert data.sim_all.sel(layer=LAYER + 1, vectors="value").item() == pytest.approx(values, abs=1e-12)
    share = data.mean_share.sel(layer=LAYER + 1, head=1, vectors="value").item()
    assert share >= math.cos(theta) ** 2 - 1e-6


@pytest.mark.parametrize("sharp", [1.0, 40.0])
@pytest.mark.parametrize("theta", [0.05, 0.5, 1.2])
def test_values_within_an_angle_keep_the_mix_within_it(theta, sharp):
    subject = cone_of_values(theta, sharp)
    data = run_lens(Convexity(), subject, [subject.encode(list(EXAMPLES))]).compute().data
    cell = data.sel(stack="encoder", layer=LAYER + 1, head=1)
    # v̄ and y lie within θ of the axis too, so nothing is farther than 2θ from v̄; and y never leaves the cone.
    assert cell.cone_widest.item() <= min(2 * theta, math.pi)
    assert cell.beyond.item() == 0.0
    assert 0 < cell.used.item() <= 1.0
    assert cell.angle.item() <= cell.cone_widest.item()
    assert cell.cone_average.item() <= theta + 1e-9


def test_narrow_cones_leave_nothing_to_choose_and_wide_ones_do():
    found = {}
    for theta in (0.05, 1.2):
        subject = cone_of_values(theta, sharp=40.0)
        data = run_lens(Convexity(), subject, [subject.encode(list(EXAMPLES))]).compute().data
        found[theta] = data.sel(stack="encoder", layer=LAYER + 1, head=1)
    assert found[0.05].distance.item() < 0.06
    assert found[0.05].cosine.item() > 0.998
    assert found[1.2].distance.item() > 10 * found[0.05].distance.item()
    # How much of the cone is used depends on the weights, not on how wide the cone is.
    assert found[1.2].used.item() == pytest.approx(found[0.05].used.item(), abs=0.25)


def test_even_weights_give_the_mean():
    subject = one_head()
    with torch.no_grad():
        query = subject.model.encoder.layer[LAYER].attention.self.query
        query.weight.zero_(), query.bias.zero_()
    cell = run_lens(Convexity(), subject, [subject.encode(list(EXAMPLES))]).compute().data
    cell = cell.sel(stack="encoder", layer=LAYER + 1, head=1)
    assert cell.distance.item() < 1e-12
    assert cell.norm_ratio.item() == pytest.approx(1.0, abs=1e-12)


def words_without_repeats(texts=40, length=8):
    rng = random.Random(0)
    words = [word for word in WORDS if word.isalpha()]
    return [Example(str(n), " ".join(rng.sample(words, length))) for n in range(texts)]


def test_isotropic_states_have_no_sim():
    """In place of the model's states, random ones: every SIM lies within its interval of 0, and IsoScore is near 1."""
    subject = one_head()
    lens, batch = Geometry(), subject.encode(words_without_repeats(texts=100))
    lens.bind(subject)
    generator = torch.Generator().manual_seed(3)
    shape = (4, *batch.source.ids.shape, lens.width)
    lens._update_count = 1  # no attention was seen
    outputs = SimpleNamespace(hidden_states=torch.randn(shape, generator=generator, dtype=torch.float64))
    lens.finish(batch, outputs)
    data = lens.compute().data.sel(stack="encoder")
    assert (abs(data.state_sim) < 3 * data.state_sim_se).all()
    assert (abs(data.state_sim_corpus) < 0.001).all()
    assert (data.state_isoscore > 0.9).all()
    assert (data.state_effective_rank > 0.98 * lens.width).all()
    assert (abs(data.self_similarity) < 3 * data.self_similarity_se + 0.01).all()
    assert (data.state_mean_share < 0.01).all()


def test_embeddings_know_no_context():
    subject = one_head()
    with torch.no_grad():
        subject.model.embeddings.position_embeddings.weight.zero_()
    batch = subject.encode(words_without_repeats())
    data = run_lens(Geometry(covariances=False), subject, [batch]).compute().data.sel(stack="encoder")
    assert data.self_similarity.sel(state=0).item() == pytest.approx(1.0)
    assert data.mev.sel(state=0).item() == pytest.approx(1.0)
    assert data.self_similarity.sel(state=3).item() < 0.99


def test_one_rogue_dimension_is_found_and_not_in_the_control():
    rogue = 5
    subject = one_head()
    last = subject.model.encoder.layer[-1].output.LayerNorm
    batch = subject.encode(list(EXAMPLES))
    control = run_lens(Geometry(words=False), subject, [batch]).compute().data.sel(stack="encoder", state=3)
    with torch.no_grad():
        last.bias[rogue] = 30.0
    cell = run_lens(Geometry(words=False), subject, [batch]).compute().data.sel(stack="encoder", state=3)
    assert int(cell.state_contribution.values.argmax()) == rogue
    assert cell.state_rogue_1.item() > 0.95
    assert cell.state_sim.item() > 0.9
    assert abs(cell.state_mean_direction.values[rogue]) > 0.95
    assert np.nanmax([control.state_rogue_1.item(), 0.0]) < 0.5
    # The cloud has moved, not changed its shape.
    assert cell.state_isoscore.item() == pytest.approx(control.state_isoscore.item(), abs=1e-9)
