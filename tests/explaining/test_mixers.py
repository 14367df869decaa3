"""Relevance through layers without attention: by the tangent of what mixes tokens there, and exact in its sum."""

import pytest
import torch
from tiny import tokenizer
from tiny.architectures import model_of_type, tiny_config
from tiny.models import peaked
from transformers import AutoModelForCausalLM

from lorgnette import lens as lenses
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining import Next, explain
from lorgnette.models.discovery.mixers import states_of
from lorgnette.subject import Subject

TEXTS = ["w5 w6 w7 w8 w9", "w3 w4 w5"]
MIXERS = {
    "bamba": ["BambaMixer"],
    "recurrent_gemma": ["RecurrentGemmaRecurrentBlock"],
    "falcon_h1": ["FalconH1Mixer", "FalconH1Mixer"],  # beside attention, in the same layers
    "lfm2": ["Lfm2ShortConv"],
}


@pytest.fixture(scope="module", params=MIXERS)
def watched(request):
    torch.manual_seed(0)
    model = peaked(AutoModelForCausalLM.from_config(tiny_config(request.param)))
    return Subject(model.double().eval(), tokenizer("gpt2"), name=request.param)


def test_what_mixes_tokens_is_found(watched):
    assert [type(module).__name__ for module in watched.anatomy.mixers] == MIXERS[watched.name]
    assert watched.anatomy.knows("mixers")
    assert not watched.anatomy.knows("mixing")


def test_relevance_and_biases_add_up_to_the_logit(watched):
    """With α and deviations constant, and what the tangent leaves counted with the biases, nothing is lost."""
    found = explain(watched, TEXTS, "ah", Next(), biases=True)
    # The models take their norms, and some recurrences, in float32.
    torch.testing.assert_close(found.total, found.start, rtol=1e-5, atol=1e-6)
    alone = explain(watched, TEXTS[1:], "ah", Next(), biases=True)
    torch.testing.assert_close(alone.tokens[0], found.tokens[1, : alone.tokens.shape[1]], rtol=1e-5, atol=1e-6)


@torch.no_grad()
def jacobian(function, x, step=2e-2):
    """∂f/∂x of one text, by differences of fourth order, as some mixers compute in float32: [out… in…]."""
    columns = []
    for place in range(x.numel()):
        moved = torch.zeros_like(x).flatten()
        moved[place] = step
        moved = moved.view_as(x)
        near, far = (function(x + times * moved) - function(x - times * moved) for times in (1, 2))
        columns.append((8 * near - far) / (12 * step))
    return torch.stack(columns, -1).unflatten(-1, x.shape)


@pytest.mark.parametrize(("kind", "method"), [("recurrent_gemma", "attnlrp"), ("lfm2", "ah")])
def test_a_mixer_passes_relevance_by_its_tangent(kind, method, monkeypatch):
    """The same relevance where the mixer is replaced by f(x₀) + J (x − x₀), J by finite differences."""
    torch.manual_seed(0)
    model = peaked(AutoModelForCausalLM.from_config(tiny_config(kind)))
    watched = Subject(model.double().eval(), tokenizer("gpt2"), name=kind)
    (mixer,) = watched.anatomy.mixers
    kept = []
    handle = mixer.register_forward_pre_hook(lambda module, a, k: kept.append((a, k)), with_kwargs=True)
    found = explain(watched, TEXTS[1:], method, Next())
    handle.remove()
    arguments, keywords = kept[0]
    x = (arguments[0] if arguments else keywords["hidden_states"]).detach()
    forward = type(mixer).forward

    def whole(states):
        if arguments:
            return forward(mixer, states, *arguments[1:], **keywords)
        return forward(mixer, **{**keywords, "hidden_states": states})

    def again(states):
        return states_of(whole(states))

    slopes, value = jacobian(again, x), again(x).detach()

    def affine(*arguments, **keywords):
        states = arguments[0] if arguments else keywords["hidden_states"]
        output = value + torch.einsum("btobsi,bsi->bto", slopes, states - x)
        return (output, None) if isinstance(whole(x), tuple) else output

    monkeypatch.setattr(mixer, "forward", affine)
    tangent = explain(watched, TEXTS[1:], method, Next())
    torch.testing.assert_close(tangent.start, found.start, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(tangent.tokens, found.tokens, rtol=1e-3, atol=1e-5)
    assert float((explain(watched, TEXTS[1:], "gradient_x_input", Next()).tokens - found.tokens).abs().max()) > 1e-3


@pytest.mark.parametrize("method", ["decompx", "voita2019", "voita2021"])
def test_methods_without_a_rule_for_mixers_are_refused(watched, method):
    with pytest.raises(UserError, match=rf"mixes tokens beside attention \({MIXERS[watched.name][0]}\), for which"):
        explain(watched, TEXTS, method, Next())


@pytest.mark.parametrize("method", ["rollout", "norm_rollout", "attention_flow", "chefer2021"])
def test_mixing_that_has_no_weights_is_not_rolled_out(watched, method):
    with pytest.raises(CaptureError, match="by no weights that could be multiplied"):
        explain(watched, TEXTS, method, Next())
    with pytest.raises(CaptureError, match="by no weights that could be multiplied"):
        lenses.get("rollout").bind(watched)


def test_mixing_outside_of_whole_modules_is_refused():
    """MobileBERT mixes neighbours in its embeddings, before its layers."""
    anatomy = Subject(model_of_type("mobilebert"), tokenizer("bert")).anatomy
    assert anatomy.mixers == ()
    with pytest.raises(CaptureError, match="not in whole modules alone"):
        anatomy.require("mixers")
