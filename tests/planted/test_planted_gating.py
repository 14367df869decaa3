"""Gating on a classifier with a head that helps, one that hurts and one that reaches nothing; and on random weights."""

import copy
from functools import cache

import pytest
import torch
from test_planted_relevance import CARRIER, HEADS, WIDTH, classifier, texts

from lorgnette.lens.gating.lens import Gating
from lorgnette.looking.controls import with_random_weights
from lorgnette.looking.look import look
from lorgnette.subject import Subject

HURTS, UNPLUGGED = 0, 1


@cache
def planted() -> Subject:
    """The classifier whose one head carries the class; another carries the opposite, a third writes nothing."""
    whole = classifier()
    model = copy.deepcopy(whole.model)
    first, dim = model.bert.encoder.layer[0].attention, WIDTH // HEADS
    with torch.no_grad():
        value, output = first.self.value, first.output.dense.weight
        output[2, CARRIER * dim], output[3, CARRIER * dim] = 0.5, -0.5  # weak enough that more of it, or less, counts
        value.weight[HURTS * dim] = value.weight[CARRIER * dim]
        output[:, HURTS * dim] = -0.8 * output[:, CARRIER * dim]
        output[:, UNPLUGGED * dim : (UNPLUGGED + 1) * dim] = 0.0
    return Subject(model, whole.tokenizer, name="planted heads")


@cache
def gated(control: bool = False):
    subject = with_random_weights(planted(), seed=1) if control else planted()
    return look(subject, texts(), [Gating(steps=30, seeds=(0, 1), rate=1.0)], progress=False)["gating"].data


def of(data, name, layer, head):
    return data[name].sel(stack="encoder", layer=layer, head=head + 1).item()


def test_the_head_that_carries_the_class_facilitates():
    assert of(gated(), "facilitation_low", 1, CARRIER) > 0.8
    assert of(gated(), "interference", 1, CARRIER) < 0.1
    assert of(gated(), "irrelevance", 1, CARRIER) < 0.2


def test_the_head_that_carries_the_opposite_interferes():
    assert of(gated(), "interference_low", 1, HURTS) > 0.8
    assert of(gated(), "facilitation", 1, HURTS) < 0.1


def test_the_head_that_reaches_nothing_is_irrelevant():
    assert of(gated(), "irrelevance_low", 1, UNPLUGGED) > 0.95
    assert of(gated(), "facilitation", 1, UNPLUGGED) < 0.02
    assert of(gated(), "interference", 1, UNPLUGGED) < 0.02


def test_held_out_loss_falls_without_the_head_that_hurts():
    loss = gated()["loss"]
    assert loss.sel(pressure="free") < loss.sel(pressure="none")
    assert loss.sel(pressure="remove") < loss.sel(pressure="none")


@pytest.mark.parametrize("name", ["facilitation", "interference"])
def test_random_weights_have_neither(name):
    assert float(gated(control=True)[f"{name}_low"].max()) < 0.5
