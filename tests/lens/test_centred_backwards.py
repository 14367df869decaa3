"""The option `centred` of gradients, relevance and roles: what they say once the constant stands in the bias."""

from functools import partial

import numpy as np
import pytest
import torch
from gauge import grouped_llama, mean_values_moved, shift_values
from tiny import EXAMPLES, examples, marian, subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining.backward import CENTRED
from lorgnette.lens import get
from lorgnette.reporting import findings
from lorgnette.testing import check_head_permutation, check_lens

MODELS = {
    "bert-classifier": (lambda: subject("bert-classifier"), examples((9, 4, 6, 12)), 1e-9),
    "bert-mlm": (lambda: subject("bert-mlm"), examples((9, 4, 6, 12)), 1e-9),  # has a pass of its own
    "marian": (marian, EXAMPLES, 1e-9),  # cross-attention
    "llama": (grouped_llama, examples((9, 4, 6, 12)), 1e-5),  # grouped keys; norms and softmax are float32 in any case
}
LENSES = ["gradients", "gradients:by=token", "roles", *(f"relevance:method={name}" for name in CENTRED)]
LAYERS = {"gradients": "gradient", "relevance": "relevance", "roles": "number"}


def found(model, texts, lens, **more):
    name = lens.partition(":")[0]
    return lo.look(model, list(texts), [get(lens, **more)], progress=False)[name].data


def unlike(one, other, name):
    """The largest difference of a variable, over its largest size."""
    a, b = one[name].values, other[name].values
    assert (np.isnan(a) == np.isnan(b)).all(), name
    return np.nanmax(np.abs(a - b), initial=0.0) / max(np.nanmax(np.abs(a), initial=0.0), 1e-12)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("lens", LENSES)
def test_it_is_what_the_lens_says_of_a_model_whose_constants_stand_in_its_biases(lens, kind):
    make, texts, tolerance = MODELS[kind]
    moved, shifted = make(), make()
    mean_values_moved(moved, texts)
    shift_values(shifted)
    expected, raw = found(moved, texts, lens), found(make(), texts, lens)
    for model in (make(), shifted):  # whatever the constants are
        own = found(model, texts, lens, centred=True)
        for name in expected:
            if expected[name].dtype.kind == "f":
                assert unlike(own, expected, name) < 1000 * tolerance, name
    assert unlike(raw, expected, LAYERS[lens.partition(":")[0]]) > 0.01


@pytest.mark.parametrize("lens", ["gradients", "relevance", "relevance:method=decompx", "roles"])
def test_laws(lens):
    make = partial(get, lens, centred=True)
    check_lens(make, marian(), EXAMPLES[1:], tolerance=1e-8)
    check_head_permutation(make, subject("bert-classifier"), examples(), tolerance=1e-8)


def test_a_head_that_always_gives_the_same_is_dead():
    """Its values are one large constant and next to nothing else; in the control they vary."""
    texts, labels = examples((9, 4, 6, 12) * 6), {}
    for planted in (True, False):
        model = subject("bert")
        value = model.anatomy.sites[0].module.value
        with torch.no_grad():
            value.bias[:8] = 20.0
            value.weight[:8] *= 1e-3 if planted else 1.0
        for centred in (True, False):
            data = found(model, texts, "roles", centred=centred)
            labels[planted, centred] = bool(data["label"].sel(stack="encoder", layer=1, head=1, role="dead"))
    assert labels == {(True, True): True, (True, False): False, (False, True): False, (False, False): False}


@pytest.mark.parametrize("method", ["voita2019", "voita2021"])
def test_rules_that_share_by_size_or_sign_are_refused(method):
    with pytest.raises(UserError, match=f"centred=true is for the methods .*Got {method!r} instead"):
        get("relevance", method=method, centred=True)


@pytest.mark.parametrize("lens", ["gradients", "relevance", "roles"])
def test_a_learnt_sink_is_refused_and_sentences_say_that_values_were_centred(lens):
    with pytest.raises(UserError, match="a learnt sink takes a part of every row"):
        found(subject("gpt-oss", dtype=torch.float32), examples((9, 4)), lens, centred=True)
    note, model = "its mean over the corpus, is left out", subject("bert-classifier")
    for centred in (True, False):
        results = lo.look(model, examples(), [get(lens, centred=centred)], progress=False)
        assert sum(note in one.text for one in findings(results)) == centred
