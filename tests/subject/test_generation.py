"""Attention of generated tokens, step by step from the cache, is that of one pass over the whole text."""

import pytest
import torch
from tiny import subject

from lorgnette.errors import UserError
from lorgnette.subject.generation import Generation
from lorgnette.subject.trace import Trace
from lorgnette.texts.example import Example

PROMPT = "w7 w8 w9 . w10 , w11"
FAMILIES = ("gpt2", "llama", "mistral", "gemma", "gemma2", "gemma3", "qwen3", "gpt-oss")
RECORDED = ("opt", "gpt-neox", "gpt-neo", "gptj", "bloom", "falcon")


@pytest.mark.parametrize("family", [*FAMILIES, *RECORDED])
def test_steps_are_one_pass(family):
    """GPT-2, grouped keys (Llama), windows that are shorter than the text (Mistral, Gemma), caps and learnt sinks."""
    wide = family != "gpt-oss"  # whose experts take float32 at most
    model = subject(family, dtype=torch.float64 if wide else torch.float32)
    tolerance = {"atol": 1e-10, "rtol": 1e-8} if wide else {"atol": 1e-5, "rtol": 1e-4}
    model.model.generation_config.eos_token_id = None
    trace = model.trace(PROMPT, generate=9)
    whole = Trace.over(model, trace.batch)
    total = len(trace.pieces())
    assert total == len(model.encode([PROMPT]).source.pieces[0]) + 9
    for part in ("query", "key", "value", "weights", "context"):
        torch.testing.assert_close(trace[part], whole[part], **tolerance)
    torch.testing.assert_close(trace.hidden_states, whole.hidden_states, **tolerance)
    torch.testing.assert_close(trace.output.logits, whole.output.logits, **tolerance)
    for site, call in trace.calls.items():
        torch.testing.assert_close(call.entropy(), whole.calls[site].entropy())
        torch.testing.assert_close(call.sink, whole.calls[site].sink)
        assert torch.equal(call.visible_keys, whole.calls[site].visible_keys)


@pytest.mark.parametrize("family", ["gpt2", "llama"])  # GPT-2 reads token types, Llama does not
def test_a_tokenizer_may_return_what_the_model_does_not_read(family):
    typed, plain = subject(family), subject(family)
    typed.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    plain.tokenizer.model_input_names = ["input_ids", "attention_mask"]
    trace, expected = (model.trace(PROMPT, generate=4) for model in (typed, plain))
    assert "token_type_ids" in trace.batch.inputs
    torch.testing.assert_close(trace["weights"], Trace.over(typed, trace.batch)["weights"])
    if family == "llama":
        assert trace.generated.text == expected.generated.text
        torch.testing.assert_close(trace["weights"], expected["weights"])


def test_greedy_is_the_likeliest_token_each_time():
    model = subject("llama")
    trace = model.trace(PROMPT, generate=5)
    start, logits = trace.generated.start, trace.output.logits[0]
    said = trace.batch.source.ids[0, start:]
    assert torch.equal(logits[start - 1 : -1].argmax(-1), said)
    assert trace.parts["generated"] == list(range(start, start + len(said)))
    assert trace.example.text == PROMPT + trace.generated.text
    assert trace.words()[-len(said) :] == tuple(model.tokenizer.convert_ids_to_tokens(said.tolist()))


def test_drawing_is_repeated_by_its_seed_and_leaves_the_generator_alone():
    model = subject("gpt2")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    drawn = {seed: model.trace(PROMPT, generate=Generation(12, temperature=2.0, seed=seed)) for seed in (1, 2)}
    assert torch.equal(torch.rand(3), expected)
    again = model.trace(PROMPT, generate=Generation(12, temperature=2.0, seed=1))
    assert drawn[1].generated == again.generated
    assert torch.equal(drawn[1]["weights"], again["weights"])
    assert drawn[1].generated.text != drawn[2].generated.text
    kept = drawn[1].generated.to_dict()
    assert (kept["temperature"], kept["seed"], kept["tokens"], kept["top_p"]) == (2.0, 1, 12, None)
    one = model.trace(PROMPT, generate=Generation(6, temperature=2.0, top_k=1))
    assert one.generated.text == model.trace(PROMPT, generate=6).generated.text


def test_the_end_of_a_text_is_read_too():
    model = subject("llama")
    first = int(model.trace(PROMPT, generate=1).batch.source.ids[0, -1])
    model.model.generation_config.eos_token_id = first
    trace = model.trace(PROMPT, generate=9)
    assert trace.generated.ended
    assert len(trace.parts["generated"]) == 1
    assert trace["weights"].shape[-1] == trace.generated.start + 1


def test_without_a_head_the_text_may_change_and_the_effect_is_on_the_same_text():
    model = subject("llama")
    heads = [f"{layer}.{head}" for layer in (1, 2, 3) for head in (1, 2, 3, 4)]
    trace = model.trace(PROMPT, generate=6, without=heads)
    intact = model.trace(PROMPT, generate=6)
    assert trace.effect.said == (intact.generated.text, trace.generated.text)
    assert trace.effect.before.shape == intact.output.logits[0].shape
    assert trace.effect.divergence > 0
    assert float(trace["context"].abs().max()) == 0


@pytest.mark.parametrize(
    ("family", "how", "words"),
    [
        ("bert", 3, "cannot continue"),
        ("marian", 3, "is a translation model"),
        ("gpt2", 0, "whole number, at least 1"),
        ("gpt2", 60, "cannot go on for 60"),
    ],
)
def test_what_cannot_be_generated_is_refused(family, how, words):
    with pytest.raises(UserError, match=words):
        subject(family).trace(PROMPT, generate=how)


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"top_k": 3}, {"temperature": 1.0, "top_p": 1.5}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(UserError):
        Generation(3, **wrong)


def test_an_empty_prompt():
    with pytest.raises(UserError, match="no tokens"):
        subject("gpt2").trace(Example("empty", ""), generate=2)
