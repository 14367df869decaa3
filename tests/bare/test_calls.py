"""Queries and keys that were captured elsewhere: lenses find in them what they find in the model."""

import base64
import inspect
import json

import numpy as np
import pytest
import torch
from tiny import examples, subject, tiny_model
from tiny.models import inputs

import lorgnette as lo
from lorgnette.attending import Recorder
from lorgnette.errors import UserError

# What the config of each tiny model says beside the product of queries and keys.
SETTINGS = {
    "llama": {"causal": True},
    "gpt2": {"causal": True},
    "mistral": {"causal": True, "window": 5},
    "gemma2": {"causal": True, "window": [5, None, 5], "softcap": 50.0, "scale": 8**-0.5},
    "gpt-oss": {"causal": True, "window": [5, None, 5]},
    "bert": {"causal": False},
    "modernbert": {"causal": False, "window": [None, 3, None]},
}


def captured(model, given):
    """Queries, keys and values as the attention function gets them, keys and values in their groups."""
    whole = Recorder(lambda call: call, residual=True)
    with torch.no_grad(), lo.tapped(model, whole):
        model(**given)
    calls = {site.layer + 1: call for site, call in whole.records.items()}
    return calls, {
        "query": {layer: call.query for layer, call in calls.items()},
        "key": {layer: call.scores.key for layer, call in calls.items()},
        "value": {layer: call.grouped_value for layer, call in calls.items()},
    }


@pytest.mark.parametrize("family", SETTINGS)
def test_calls_are_those_of_the_model(family):
    wide = family != "gpt-oss"  # whose experts work in float32
    model = tiny_model(family, dtype=torch.float64 if wide else torch.float32)
    given = inputs(model)
    seen, tensors = captured(model, given)
    settings = dict(SETTINGS[family])
    if family == "gpt-oss":
        settings["sinks"] = [layer.self_attn.sinks for layer in model.model.layers]
    made = lo.calls(**tensors, mask=given["attention_mask"], **settings)
    real = given["attention_mask"].bool()
    for number, call in enumerate(made, 1):
        for name in ("weights", "context"):
            mine, own = (getattr(each, name).transpose(1, 2)[real] for each in (call, seen[number]))
            torch.testing.assert_close(mine, own, rtol=1e-10 if wide else 1e-5, atol=1e-12 if wide else 1e-6)
        torch.testing.assert_close(call.visible_keys[:, 0][real], seen[number].visible_keys[:, 0][real])


@pytest.mark.parametrize("family", ["bert", "llama", "gemma2"])
@pytest.mark.parametrize("lens", ["weights", "distances", "norms:sample=0", "sinks", "convexity"])
def test_lenses_find_what_they_find_in_the_model(family, lens):
    own = subject(family)
    batch = own.encode(examples())
    seen, tensors = captured(own.model, batch.inputs)
    expected = lo.lens.get(lens)
    with lo.watch(own, expected, batch=batch), torch.no_grad():
        own.model(**batch.inputs)
    residual = {layer: call.residual for layer, call in seen.items()}
    made = lo.calls(**tensors, residual=residual, batch=batch, model=own, **SETTINGS[family])
    name = lens.partition(":")[0]
    found, expected = made.look(lens)[name].data, expected.compute().data
    assert set(found) == set(expected)
    numeric = [name for name in expected.data_vars if expected[name].dtype.kind == "f"]
    assert numeric
    for variable in numeric:
        np.testing.assert_allclose(found[variable], expected[variable], rtol=1e-9, atol=1e-12)


def test_without_values_the_weights_are_the_same_and_norms_are_refused():
    _, tensors = captured(tiny_model("llama"), inputs(tiny_model("llama")))
    whole = lo.calls(**tensors, causal=True)
    bare = lo.calls(tensors["query"], tensors["key"], causal=True)
    assert bare.stored == ("query", "key", "weights")
    assert not bare.contexts()
    for one, other in zip(bare, whole, strict=True):
        torch.testing.assert_close(one.entropy(), other.entropy())
        assert "the sweep" in one.paths
    with pytest.raises(UserError, match="values of decoder layer 1 were not captured: pass value=…"):
        next(iter(bare)).context  # noqa: B018
    with pytest.raises(UserError, match="captured elsewhere, without the model's weights"):
        whole.look("norms:residual=false")
    with pytest.raises(UserError, match="values of decoder layer 1 were not captured"):
        lo.calls(tensors["query"], tensors["key"], causal=True, model=tiny_model("llama")).look("norms:residual=false")


def test_the_last_queries_of_a_cache_and_a_bias():
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, heads, 9, 8, generator=generator, dtype=torch.float64) for heads in (4, 2))
    bias = torch.randn(1, 4, 9, 9, generator=generator, dtype=torch.float64)
    whole = next(iter(lo.calls(query, key, causal=True, window=4, bias=bias)))
    last = next(iter(lo.calls(query[:, :, -2:], key, causal=True, window=4, bias=bias[:, :, -2:])))
    torch.testing.assert_close(last.weights, whole.weights[:, :, -2:])
    scores = query @ key.repeat_interleave(2, 1).mT * 8**-0.5 + bias
    distance = torch.arange(9)[:, None] - torch.arange(9)
    expected = scores.masked_fill((distance < 0) | (distance > 3), -torch.inf).softmax(-1)
    torch.testing.assert_close(whole.weights, expected)
    pairs = ((distance >= 0) & (distance <= 3))[None, None]
    torch.testing.assert_close(next(iter(lo.calls(query, key, causal=False, mask=pairs, bias=bias))).weights, expected)


def test_cross_attention_takes_the_batch():
    own = subject("marian")
    batch = own.encode(examples())
    whole = Recorder(lambda call: call)
    with torch.no_grad(), lo.tapped(own.model, whole):
        own.model(**batch.inputs)
    cross = {site: call for site, call in whole.records.items() if site.kind == "cross"}
    tensors = {
        "query": [call.query for call in cross.values()],
        "key": [call.scores.key for call in cross.values()],
    }
    made = lo.calls(**tensors, causal=False, stack="cross", batch=batch)
    found = made.look("weights")["weights"].data
    expected = lo.look(own, examples(), "weights", progress=False)["weights"].data.sel(stack=["cross"])
    np.testing.assert_allclose(found["entropy"], expected["entropy"], rtol=1e-9)
    with pytest.raises(UserError, match="pass batch="):
        lo.calls(**tensors, causal=False, stack="cross").look("weights")


def test_several_passes_add_up():
    own = subject("llama")
    texts = examples()
    lens = lo.lens.get("weights")
    for text in texts:
        batch = own.encode([text])
        _, tensors = captured(own.model, batch.inputs)
        lo.calls(tensors["query"], tensors["key"], causal=True, batch=batch).feed(lens)
    expected = lo.look(own, texts, "weights", progress=False)["weights"].data
    np.testing.assert_allclose(lens.compute().data["entropy"], expected["entropy"], rtol=1e-9)


def test_what_runs_the_model_is_refused():
    query, key = torch.rand(2, 1, 4, 9, 8), torch.rand(2, 1, 2, 9, 8)
    made = lo.calls(query, key, causal=True)
    for lens, why in {
        "geometry": "hidden states",
        "gradients": "gradients",
        "rollout": "residual=…",
        "circuits": "captured elsewhere",
        "logitlens": "no loss",
    }.items():
        with pytest.raises(UserError, match=why):
            made.look(lens)
    with pytest.raises(UserError, match="cannot run here"):
        made.subject.run(made.batch)

    class Edit(lo.Tap):
        def weights(self, call, weights):
            return weights

    with pytest.raises(UserError, match="nothing runs here that could change"), made.subject.tapped(Edit()):
        pytest.fail("a tap that edits was accepted")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": torch.rand(2, 1, 3, 9, 8)}, "number of key heads that divides"),
        ({"key": torch.rand(2, 1, 2, 5, 8)}, "as many or more keys"),
        ({"key": torch.rand(3, 1, 2, 9, 8)}, "key has 3 layers"),
        ({"key": torch.rand(2, 1, 2, 9, 8).double()}, "expected one type"),
        ({"query": torch.rand(9, 8)}, r"query of layer 1 must be \[text head token dim\]"),
        ({"query": torch.full((2, 1, 4, 9, 8), torch.nan)}, "NaN"),
        ({"query": "nothing"}, "must be a tensor, a list"),
        ({"window": 0}, "above 0"),
        ({"window": [4]}, "2 layers and 1 of window"),
        ({"sinks": torch.rand(3)}, "4 numbers, one for each head"),
        ({"bias": torch.rand(1, 4, 9, 8)}, "must broadcast to 1 × 4 × 9 × 9"),
        ({"mask": torch.ones(1, 7)}, "mask is for 1 × 7"),
        ({"causal": "yes"}, "causal must be True or False"),
        ({"stack": "tower"}, "stack must be"),
        ({"layers": [4]}, "query has 2 layers"),
        ({"scale": {7: 1.0}}, "scale names layer 7"),
        ({"batch": 3}, "batch must be a Batch"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, why):
    given = {"query": torch.rand(2, 1, 4, 9, 8), "key": torch.rand(2, 1, 2, 9, 8), "causal": True}
    with pytest.raises(UserError, match=why):
        inspect.unwrap(lo.calls)(**{**given, **change})


def alibi(slopes, width):
    distance = torch.arange(width) - torch.arange(width)[:, None]
    return torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance


@pytest.mark.parametrize("kind", ["in Python", "as JSON", "in a file"])
def test_files_of_vllm_lens(kind, tmp_path):
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 9, heads, 8, generator=generator) for heads in (4, 2))
    slopes, sinks = [0.5, 0.25, 0.125, 0.0625], [0.1, -0.2, 0.3, 1.0]
    metas = [
        {"scale": 0.3, "sliding_window": [-1, -1], "logits_soft_cap": 0.0, "alibi_slopes": slopes, "sinks": None},
        {"scale": 0.5, "sliding_window": [3, 0], "logits_soft_cap": 20.0, "alibi_slopes": None, "sinks": sinks},
    ]
    source = {"attn_q": query, "attn_k": key, "qk_layers": [1, 7], "qk_meta": metas}
    if kind == "as JSON":
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing here decompresses zstd")
        sent = {name: {"__json__": value} for name, value in source.items()}
        for name in ("attn_q", "attn_k"):
            data = base64.b64encode(arrow.compress(source[name].numpy().tobytes(), codec="zstd", asbytes=True)).decode()
            sent[name] = {
                "data": data, "dtype": "float32", "original_dtype": "torch.float32",
                "shape": list(source[name].shape), "compression": "zstd",
            }  # fmt: skip
        (tmp_path / "answer.json").write_text(json.dumps({"id": "1", "activations": sent}))
        made = lo.vllm_calls(tmp_path / "answer.json")
        assert made.subject.name == "answer"
    elif kind == "in a file":
        torch.save(source, tmp_path / "capture.pt")
        made = lo.vllm_calls(tmp_path / "capture.pt")
    else:
        made = lo.vllm_calls(source)
    assert [site.layer + 1 for site in made.sites] == [2, 8]
    first, second = made
    q, k = query.double().transpose(1, 2), key.double().transpose(1, 2).repeat_interleave(2, 1)
    distance = torch.arange(9)[:, None] - torch.arange(9)
    scores = q[0] @ k[0].mT * 0.3 + alibi(slopes, 9)
    expected = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
    torch.testing.assert_close(first.weights[0].double(), expected, rtol=1e-5, atol=1e-6)
    scores = 20 * torch.tanh(q[1] @ k[1].mT * 0.5 / 20)
    scores = scores.masked_fill((distance < 0) | (distance > 3), -torch.inf)
    sunk = torch.cat([scores, torch.tensor(sinks).double()[:, None, None].expand(4, 9, 1)], -1).softmax(-1)
    torch.testing.assert_close(second.weights[0].double(), sunk[..., :-1], rtol=1e-5, atol=1e-6)
    assert int(made.look("weights")["weights"].data["entropy_count"].max()) == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"residual_stream": torch.rand(1)}, "has no attn_q: queries and keys were not captured"),
        ("absent.json", "There is no file absent.json"),
        ([1], "is no capture of vllm-lens"),
        ({"attn_q": {"handle": "1"}, "attn_k": 0, "qk_layers": 0, "qk_meta": 0}, "still on the server"),
        ({"attn_q": 0, "attn_k": 0, "qk_layers": [0], "qk_meta": [{}]}, r"attn_q of the capture must be \[layer token"),
    ],
)
def test_captures_that_are_none_are_refused(source, why):
    with pytest.raises(UserError, match=why):
        inspect.unwrap(lo.vllm_calls)(source)
