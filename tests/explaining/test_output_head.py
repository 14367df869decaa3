"""The output head run by itself against formulas written out by family, and the logits of heads against their sum."""

import pytest
import torch
import torch.nn.functional as F
from headed import HEADED, examples, headed
from tiny import tiny_model, tokenizer
from transformers import CohereConfig, CohereForCausalLM, GraniteConfig, GraniteForCausalLM

from lorgnette.attending import Recorder
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining.head_logits import HeadLogits, WrittenStates
from lorgnette.explaining.logit_lens import logit_lens
from lorgnette.explaining.output_head import OutputHead, Predictions
from lorgnette.lens.losses import TASKS, task_of
from lorgnette.subject import Subject
from lorgnette.texts.example import Example

# fmt: off
SIZE = {
    "vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
    "intermediate_size": 40, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
}
# fmt: on
SCALED = {
    "cohere": lambda: CohereForCausalLM(CohereConfig(**SIZE, logit_scale=0.25)),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(**SIZE, logits_scaling=4.0, residual_multiplier=0.5)),
}


def made(name):
    if name not in SCALED:
        return headed(name)
    torch.manual_seed(0)
    return Subject(SCALED[name]().double().eval(), tokenizer("llama"), name=f"tiny {name}")


CLASSIFIERS = {"roberta", "distilbert", "bert-tokens", *(name for name in HEADED if "classifier" in name)}
PREDICTING = [name for name in HEADED if name not in CLASSIFIERS] + list(SCALED)


def some_places(batch):
    """Every second token, which leaves a different number of them to each text."""
    mask = (batch.source if batch.target is None else batch.target).mask.clone()
    mask[:, ::2] = False
    return Predictions.at(mask)


def test_the_families_are_of_all_three_kinds():
    assert {task_of(made(name)) for name in PREDICTING} == set(TASKS) - {"classification"}


@pytest.mark.parametrize("name", PREDICTING)
@torch.no_grad()
def test_the_last_row_is_the_logits_to_the_last_bit(name):
    subject = made(name)
    batch = subject.encode(examples((7, 3)))
    head = OutputHead(subject)
    read = head.read(batch)
    assert torch.equal(head.logits(batch, read.states[-1]), read.outputs.logits)
    head.check(batch)
    places = some_places(batch)
    packed = head.logits(batch, places.of(read.states[-1]))
    torch.testing.assert_close(packed, places.of(read.outputs.logits), rtol=1e-6, atol=1e-7)
    assert len(read.states) == 1 + len({site.layer for site in subject.sites if site.stack == head.stack.name})
    assert not torch.equal(head.logits(batch, read.states[0]), read.outputs.logits)


def layer_norm(x, norm):
    """γ ⊙ (x − mean) / √(variance + ε) + β, as its paper has it."""
    centred = x - x.mean(-1, keepdim=True)
    return norm.weight * centred / ((centred**2).mean(-1, keepdim=True) + norm.eps).sqrt() + norm.bias


def rms_norm(x, norm, epsilon, offset=0.0):
    return (offset + norm.weight) * x / ((x**2).mean(-1, keepdim=True) + epsilon).sqrt()


def gpt2_by_hand(model, x):
    return layer_norm(x, model.transformer.ln_f) @ model.transformer.wte.weight.T


def bert_by_hand(model, x):
    transform, decoder = model.cls.predictions.transform, model.cls.predictions.decoder
    hidden = layer_norm(F.gelu(transform.dense(x)), transform.LayerNorm)
    return hidden @ model.bert.embeddings.word_embeddings.weight.T + decoder.bias


def marian_by_hand(model, x):
    return x @ model.model.shared.weight.T + model.final_logits_bias


def gemma2_by_hand(model, x):
    cap = model.config.final_logit_softcapping
    logits = rms_norm(x, model.model.norm, model.config.rms_norm_eps, offset=1.0) @ model.model.embed_tokens.weight.T
    return cap * torch.tanh(logits / cap)


def granite_by_hand(model, x):
    return rms_norm(x, model.model.norm, model.config.rms_norm_eps) @ model.lm_head.weight.T / 4.0


def cohere_by_hand(model, x):
    centred = x - x.mean(-1, keepdim=True)
    normed = (
        model.model.norm.weight * centred / ((centred**2).mean(-1, keepdim=True) + model.config.layer_norm_eps).sqrt()
    )
    return normed @ model.lm_head.weight.T * 0.25


def t5_by_hand(model, x):
    scale = model.config.d_model**-0.5 if model.config.tie_word_embeddings else 1.0
    return rms_norm(x, model.decoder.final_layer_norm, model.config.layer_norm_epsilon) * scale @ model.lm_head.weight.T


BY_HAND = {
    "gpt2": gpt2_by_hand, "bert-mlm": bert_by_hand, "marian": marian_by_hand, "gemma2": gemma2_by_hand,
    "granite": granite_by_hand, "cohere": cohere_by_hand, "t5": t5_by_hand,
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
@torch.no_grad()
def test_every_state_is_read_as_the_family_reads_its_last(name):
    subject = made(name)
    if name == "marian":
        subject.model.final_logits_bias += torch.randn_like(subject.model.final_logits_bias)
    batch = subject.encode(examples((7, 3)))
    head = OutputHead(subject)
    read = head.read(batch)
    for state in read.states:
        torch.testing.assert_close(head.logits(batch, state), BY_HAND[name](subject.model, state), rtol=2e-6, atol=2e-6)


@torch.no_grad()
def test_the_states_are_those_of_the_model():
    subject = made("gpt2")
    batch = subject.encode(examples((7, 3)))
    read = OutputHead(subject).read(batch)
    own = subject.run(batch, output_hidden_states=True).hidden_states  # the last one is behind the final norm
    for state, expected in zip(read.states[:-1], own[:-1], strict=True):
        assert torch.equal(state, expected)


@pytest.mark.parametrize("name", PREDICTING)
def test_heads_feed_forward_parts_and_biases_are_the_logits(name):
    subject = made(name)
    batch = subject.encode(examples((7, 3)))
    places = some_places(batch)
    written = WrittenStates(OutputHead(subject), batch)
    found = HeadLogits(written, places)
    total = sum(found.rest().values())
    for site in written.sites:
        heads = list(found.heads(site))
        assert len(heads) == subject.anatomy[site].heads
        total = total + sum(heads)
    with torch.no_grad():
        logits = places.of(subject.run(batch).logits)
    torch.testing.assert_close(total, logits, rtol=2e-6, atol=2e-6)  # RMSNorms of transformers compute in float32
    predicting = {site for site in subject.sites if site.stack == written.head.stack.name}
    assert set(written.sites) == predicting


@torch.no_grad()
def by_hand_gpt2(subject, batch, site, head, final):
    """W_U (γ ⊙ centred(z W_O) / s), s of the final state."""
    recorder = Recorder.of("context")
    with subject.tapped(recorder):
        subject.run(batch)
    context = recorder.records[site]["context"][:, head]
    width = context.shape[-1]
    written = context @ subject.model.transformer.h[site.layer].attn.c_proj.weight[head * width : (head + 1) * width]
    norm = subject.model.transformer.ln_f
    s = (final.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (written - written.mean(-1, keepdim=True)) / s * norm.weight @ subject.model.lm_head.weight.T


def test_a_heads_logits_are_its_output_through_the_frozen_norm():
    subject = made("gpt2")
    batch = subject.encode(examples((7, 3)))
    places = some_places(batch)
    written = WrittenStates(OutputHead(subject), batch)
    for site in written.sites:
        for head, logits in enumerate(HeadLogits(written, places).heads(site)):
            expected = places.of(by_hand_gpt2(subject, batch, site, head, written.final.detach()))
            torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-10)


def test_places_are_packed():
    mask = torch.tensor([[False, True, False, True, True], [False, False, True, False, False]])
    places = Predictions.at(mask)
    tokens = torch.arange(10).view(2, 5)
    assert places.of(tokens)[places.known].tolist() == [1, 3, 4, 7]
    assert places.known.tolist() == [[True, True, True], [True, False, False]]
    few = list(places.parts(2**25))
    assert [part.where.shape for part in few] == [(2, 1)] * 3
    assert torch.equal(torch.cat([part.where for part in few], 1), places.where)


def test_a_model_with_something_else_behind_its_layers_is_refused():
    subject = made("gpt2")
    batch = subject.encode(examples((7, 3)))
    forward = type(subject.model).forward

    def with_more(self, input_ids=None, **keywords):
        output = forward(self, input_ids=input_ids, **keywords)
        output.logits = output.logits + self.transformer.seen[..., None]
        return output

    def see(module, arguments, output):
        subject.model.transformer.seen = output.mean(-1)

    hook = subject.model.transformer.h[0].mlp.register_forward_hook(see)
    subject.model.forward = with_more.__get__(subject.model)
    subject.model(**batch.inputs)
    seen = subject.model.transformer.seen

    def moving(module, arguments, output):  # the pass whose layers are skipped sees what the last pass left, doubled
        subject.model.transformer.seen = 2 * seen

    other = subject.model.transformer.wte.register_forward_hook(moving)
    with pytest.raises(CaptureError, match="its last state gives other logits than the model"):
        OutputHead(subject).check(batch)
    hook.remove()
    other.remove()


@pytest.mark.parametrize("name", ["distilbert", "bert-tokens"])
def test_a_classifier_is_refused(name):
    with pytest.raises(CaptureError, match="gives the logits of classes, not of tokens"):
        OutputHead(made(name))


def test_a_model_without_a_head_is_refused():
    subject = Subject(tiny_model("bert", 0, torch.float64), tokenizer("bert"), name="tiny bert")
    with pytest.raises(UserError, match="no output head"):
        OutputHead(subject)


@pytest.mark.parametrize(("name", "text"), [("gpt2", "w1 w2 w3 w4"), ("bert-mlm", "w1 [MASK] w3"), ("marian", "w1 w2")])
def test_the_logit_lens_of_one_text(name, text):
    subject = made(name)
    found = logit_lens(subject, text)
    batch = subject.encode([Example("t", text, target="w2 w3" if name == "marian" else None)])
    if name == "marian":
        found = logit_lens(subject, text, target="w2 w3")
    with torch.no_grad():
        logits = subject.run(batch).logits[0]
    expected = logits[list(found.positions)]
    assert torch.equal(found.top[-1], expected.argmax(-1))
    torch.testing.assert_close(found.probability[-1], expected.softmax(-1).max(-1).values)
    assert len(found.pieces) == len(found.top) == 1 + max(s.layer for s in subject.sites) + 1
    frame = found.to_dataframe()
    assert len(frame) == found.top.numel()
    assert frame[frame.state == frame.state.max()].agrees.all()
    by_loop = [
        min(k for k in range(len(found.top)) if all(row[i] == found.top[-1, i] for row in found.top[k:]))
        for i in range(len(found.tokens))
    ]
    assert found.settled.tolist() == by_loop
    assert found.plot().chart.to_dict()
    assert f"{len(found.tokens)} positions" in repr(found)
