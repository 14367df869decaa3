"""Passes that go on from a cache: the numbers of the whole pass, and a cache that stays as the user gave it."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import LLAMA, MARIAN, TEXTS, loud, word_pieces

import lorgnette as lo
from lorgnette.errors import UserError

HEADS = ["1.1", "2.3"]
NEW = 2


@pytest.fixture(scope="module")
def llama():
    return loud(hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA)).double()


@pytest.fixture(scope="module")
def whole():
    """Texts padded on the left, with the position of each token."""
    tokenizer = word_pieces()
    tokenizer.padding_side = "left"
    made = dict(tokenizer([TEXTS[0], TEXTS[2]], padding=True, return_tensors="pt", return_token_type_ids=False))
    made["position_ids"] = (made["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return made


def cached(model, whole):
    """The last tokens, with a cache of those before."""
    with torch.no_grad():
        begun = model(**{name: tensor[:, :-NEW] for name, tensor in whole.items()}, use_cache=True)
    last = {name: tensor if name == "attention_mask" else tensor[:, -NEW:] for name, tensor in whole.items()}
    return {**last, "past_key_values": begun.past_key_values}


def held(inputs):
    return inputs["past_key_values"].get_seq_length()


def test_attention_after_a_cache_is_the_end_of_the_whole_pass(llama, whole):
    inputs = cached(llama, whole)
    real = whole["attention_mask"].bool()
    with torch.no_grad():
        expected = lo.attention(llama, **whole)["weights"][:, :, :, -NEW:]
        found = lo.attention(llama, **inputs)["weights"]
        last = lo.attention(llama, **inputs, rows=[-1], parts=["weights"])["weights"]
    for text, tokens in enumerate(real):
        torch.testing.assert_close(found[:, text][..., tokens], expected[:, text][..., tokens])
    torch.testing.assert_close(last, found[:, :, :, -1:])
    assert held(inputs) == whole["input_ids"].shape[1] - NEW


def test_effects_after_a_cache_run_both_passes_on_the_same_cache(llama, whole):
    inputs, other = cached(llama, whole), cached(llama, {**whole, "input_ids": whole["input_ids"].flip(0)})
    source = lo.attention(llama, parts=["context"], **other)
    twin = copy.deepcopy(inputs)
    with torch.no_grad():
        before = llama(**copy.deepcopy(twin)).logits
        with lo.without(llama, HEADS):
            after = llama(**copy.deepcopy(twin)).logits
        with lo.patched(llama, source, HEADS):
            patched = llama(**copy.deepcopy(twin)).logits
    for found, expected in (
        (lo.effect(llama, inputs, without=HEADS), after),
        (lo.effect(llama, inputs, patched=(source, HEADS)), patched),
        (lo.effect(llama, inputs, without=HEADS), after),  # again, on the cache that was used before
    ):
        torch.testing.assert_close(found.before, before)
        torch.testing.assert_close(found.after, expected)
        p, q = before.log_softmax(-1), expected.log_softmax(-1)
        assert found.divergence == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-9)
    slopes = lo.gradient_effects(llama, inputs)
    np.testing.assert_array_equal(lo.gradient_effects(llama, inputs).values, slopes.values)
    assert held(inputs) == whole["input_ids"].shape[1] - NEW
    for layer, twin_layer in zip(inputs["past_key_values"].layers, twin["past_key_values"].layers, strict=True):
        assert torch.equal(layer.keys, twin_layer.keys)


def test_gradients_flow_through_a_cache(llama, whole):
    begun = llama(**{name: tensor[:, :-NEW] for name, tensor in whole.items()}, use_cache=True)
    cache = begun.past_key_values
    seen = lo.attention(llama, **cached(llama, whole) | {"past_key_values": cache})
    (slope,) = torch.autograd.grad(seen["weights"].square().sum(), cache.layers[0].keys)
    assert bool(slope.any())


def test_a_cache_of_a_translation():
    model = loud(hf.MarianMTModel, hf.MarianConfig(**MARIAN)).double()
    source = word_pieces()([TEXTS[0]], return_tensors="pt", return_token_type_ids=False)
    ids = word_pieces()([TEXTS[2]], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        begun = model(**source, decoder_input_ids=ids[:, :-NEW], use_cache=True)
        inputs = {**source, "decoder_input_ids": ids[:, -NEW:], "past_key_values": begun.past_key_values}
        twin = copy.deepcopy(inputs)
        with lo.without(model, ["decoder.1.2"]):
            after = model(**twin).logits
    masked = {**inputs, "decoder_attention_mask": torch.ones_like(ids)}
    for given in (inputs, masked):
        torch.testing.assert_close(lo.effect(model, given, without=["decoder.1.2"]).after, after)


def test_a_mask_of_the_new_tokens_alone_is_refused(llama, whole):
    inputs = cached(llama, whole)
    length = whole["input_ids"].shape[1]
    inputs["attention_mask"] = inputs["attention_mask"][:, -NEW:]
    for call in (lambda: lo.attention(llama, **inputs), lambda: lo.effect(llama, inputs, without=HEADS)):
        with pytest.raises(UserError, match=f"attention_mask is for 2 positions: expected {length}, one for each of"):
            call()
