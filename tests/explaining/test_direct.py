"""The direct path against a walk by hand, and its terms against the logit, for every family."""

import pytest
import torch
from headed import HEADED, examples, headed
from tiny import subject as tiny_subject

from lorgnette.attending import Recorder, Site
from lorgnette.errors import CaptureError
from lorgnette.explaining.direct import TERMS, direct_effects
from lorgnette.lens.effects.goal import goal_of
from lorgnette.lens.losses import masked, task_of


def prepared(subject, target=("predicted",)):
    batch, labels, task = subject.encode(examples((7, 3))), None, task_of(subject)
    if task == "masked":
        batch, labels = masked(subject, batch)
    recorder = Recorder.of("context")
    with torch.no_grad(), subject.tapped(recorder):
        logits = subject.run(batch).logits
    return batch, goal_of(subject, task, batch, logits, target, labels), recorder.records


@pytest.mark.parametrize("name", [name for name in HEADED if name != "bert-tokens"])
def test_the_terms_are_the_logit(name):
    subject = headed(name)
    batch, goal, _ = prepared(subject)
    found = direct_effects(subject, batch, goal)
    with torch.no_grad():
        value = goal(subject.run(batch).logits)
    torch.testing.assert_close(found.value, value, rtol=1e-6, atol=1e-6)  # gemma2 caps its logits in float32
    torch.testing.assert_close(found.terms().sum(-1), value, rtol=1e-6, atol=1e-6)
    assert found.terms().shape[-1] == len(TERMS)
    bent = any(word in name for word in ("bert", "electra", "mpnet", "mlm", "classifier")) and name != "gpt2-classifier"
    straight = name == "distilbert"  # its ReLU is its own tangent
    gemma2 = name == "gemma2"  # caps its logits by a tanh
    assert bool((found.remainder != 0).any()) == ((bent and not straight) or gemma2)
    outputs = {site for site in subject.sites if site.stack == "decoder"} or set(subject.sites)
    assert set(found.slopes) == outputs


def written(subject, site, context):
    """What each head writes into the residual stream: [batch head query model]."""
    return context @ subject.anatomy[site].output_weights()[0].detach()


def deviations(subject, batch, norms):
    """γ / s of every norm, from its own input."""
    gains, hooks = {}, []
    for norm in norms:

        def keep(module, arguments, output):
            variance = arguments[0].var(-1, unbiased=False, keepdim=True)
            gains[id(module)] = module.weight / (variance + module.eps).sqrt()

        hooks.append(norm.register_forward_hook(keep))
    with torch.no_grad():
        subject.run(batch)
    for hook in hooks:
        hook.remove()
    return gains


def through(change, norm, gains):
    """A change of a norm's input as it comes out, with s as it was."""
    return (change - change.mean(-1, keepdim=True)) * gains[id(norm)][:, None]


@torch.no_grad()
def gpt2_by_hand(subject, batch, site, change):
    model = subject.model
    gains = deviations(subject, batch, [model.transformer.ln_f])
    return through(change, model.transformer.ln_f, gains) @ model.lm_head.weight.T


@torch.no_grad()
def bert_by_hand(subject, batch, site, change):
    model, layers = subject.model, subject.model.bert.encoder.layer
    path = []
    for number, layer in enumerate(layers):
        path += [layer.attention.output.LayerNorm] if number >= site.layer else []
        path += [layer.output.LayerNorm] if number >= site.layer else []
    gains = deviations(subject, batch, path)
    for norm in path:
        change = through(change, norm, gains)
    top = subject.run(batch, output_hidden_states=True).hidden_states[-1][:, 0]
    slope = 1 - model.bert.pooler.dense(top).tanh() ** 2
    return (change[:, :, 0] @ model.bert.pooler.dense.weight.T * slope[:, None]) @ model.classifier.weight.T


@torch.no_grad()
def marian_by_hand(subject, batch, site, change):
    path = []
    for number, layer in enumerate(subject.model.model.decoder.layers):
        norms = [layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm]
        start = 1 if number == site.layer and site.kind == "cross" else 0
        path += norms[start:] if number >= site.layer else []
    gains = deviations(subject, batch, path)
    for norm in path:
        change = through(change, norm, gains)
    return change @ subject.model.lm_head.weight.T


@pytest.mark.parametrize(
    ("name", "by_hand"), [("gpt2", gpt2_by_hand), ("bert-classifier", bert_by_hand), ("marian", marian_by_hand)]
)
@pytest.mark.parametrize("target", ["predicted", "margin"])
def test_a_heads_direct_effect_is_its_output_through_frozen_norms(name, by_hand, target):
    subject = headed(name)
    batch, goal, contexts = prepared(subject, (target,))
    found = direct_effects(subject, batch, goal)
    for site in found.slopes:
        change = written(subject, site, contexts[site]["context"])
        logits = by_hand(subject, batch, site, change)  # [batch head (query) choice]
        expected = torch.stack([goal(logits[:, head]) for head in range(logits.shape[1])], -1)
        torch.testing.assert_close(found.heads(site), expected, rtol=1e-9, atol=1e-10)


def test_an_encoder_has_no_direct_path_to_the_translation():
    found = direct_effects(*[subject := headed("marian"), *prepared(subject)[:2]])
    assert Site("encoder", "self", 0) not in found.slopes
    assert not any(site.stack == "encoder" for site in found.feed_forward)


def test_a_path_that_is_not_known_is_refused_by_name():
    subject = tiny_subject("gpt2")
    batch, goal, _ = prepared(subject)
    hook = subject.model.transformer.ln_f.register_forward_hook(lambda module, arguments, output: output * output)
    try:
        with pytest.raises(CaptureError, match="direct path of 'tiny gpt2'"):
            direct_effects(subject, batch, goal)
    finally:
        hook.remove()
    layer = subject.model.transformer.h[0].mlp
    layer.act = torch.nn.Identity()
    with pytest.raises(CaptureError, match="feed-forward part of decoder layer 1"):
        direct_effects(subject, batch, goal)


def test_the_model_is_as_it_was():
    subject = headed("llama")
    batch, goal, _ = prepared(subject)
    with torch.no_grad():
        before = subject.run(batch).logits
        direct_effects(subject, batch, goal)
        assert torch.equal(subject.run(batch).logits, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in subject.model.modules())
