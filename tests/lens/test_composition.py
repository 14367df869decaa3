"""The split of scores against a model written out with one vector for every part of the residual stream."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control, t
from tiny import FAMILIES, classifier, examples, gpt2
from tiny import subject as tiny_subject

import lorgnette as lo
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining.stream import ResidualStream, writers
from lorgnette.reporting import figures_of, findings

TEXTS = examples((9, 4, 12, 1, 7))


class Parts(dict):
    """The residual stream of one text as named parts, [token model] each."""

    def total(self):
        return sum(self.values())

    def linear(self, weight, bias=None):
        out = Parts({name: part @ weight for name, part in self.items()})
        if bias is not None:
            out["biases"] = out.get("biases", 0) + bias.expand(len(self.total()), -1)
        return out

    def normed(self, norm, *, centred):
        """With the mean square of the whole."""
        x = self.total()
        if centred:
            x = x - x.mean(-1, keepdim=True)
        eps = norm.eps if centred else norm.variance_epsilon
        scale = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
        parts = {n: (p - p.mean(-1, keepdim=True) if centred else p) * scale * norm.weight for n, p in self.items()}
        out = Parts(parts)
        if centred:
            out["biases"] = out.get("biases", 0) + norm.bias.expand_as(x)
        return out

    def plus(self, name, part):
        return Parts({**self, name: self.get(name, 0) + part})


def attended(query, key, scale, causal):
    scores = scale * query.total() @ key.total().T
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
    return scores.softmax(-1)


def columns(linear, head, dim):
    weight = linear.weight.T[:, head * dim : (head + 1) * dim]
    return weight, None if linear.bias is None else linear.bias[head * dim : (head + 1) * dim]


def gpt2_heads(model, ids):
    """For every head of every layer: the parts of its queries and of its keys, its scale and its weights."""
    transformer = model.transformer
    x = Parts({"decoder tokens": transformer.wte(ids), "decoder positions": transformer.wpe(torch.arange(len(ids)))})
    width = x.total().shape[1]
    for layer, block in enumerate(transformer.h):
        normed, heads = x.normed(block.ln_1, centred=True), block.attn.num_heads
        dim = width // heads
        weight, bias = block.attn.c_attn.weight, block.attn.c_attn.bias
        for head in range(heads):
            q, k, v = (
                normed.linear(weight[:, start : start + dim], bias[start : start + dim])
                for start in (part * width + head * dim for part in range(3))
            )
            alpha = attended(q, k, dim**-0.5, causal=True)
            yield (layer, head), q, k, dim**-0.5, alpha
            write = alpha @ v.total() @ block.attn.c_proj.weight[head * dim : (head + 1) * dim]
            x = x.plus(f"decoder {layer + 1}-{head + 1}", write)
        x = x.plus("biases", block.attn.c_proj.bias.expand(len(ids), -1))
        middle = block.mlp.act(block.mlp.c_fc(x.normed(block.ln_2, centred=True).total()))
        x = x.plus(f"decoder {layer + 1} feed-forward", middle @ block.mlp.c_proj.weight)
        x = x.plus("biases", block.mlp.c_proj.bias.expand(len(ids), -1))


def rotated(parts, theta):
    """Rotary positions: component h and h + d/2 are turned by position · θ^(−2h/d)."""

    def one(x):
        half = x.shape[1] // 2
        angle = torch.arange(len(x))[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
        a, b = x[:, :half], x[:, half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 1)

    return Parts({name: one(part) for name, part in parts.items()})


def llama_heads(model, ids):
    base, config = model.model, model.config
    x = Parts({"decoder tokens": base.embed_tokens(ids)})
    theta = config.rope_parameters["rope_theta"]
    for layer, block in enumerate(base.layers):
        attention, normed = block.self_attn, x.normed(block.input_layernorm, centred=False)
        dim, heads = attention.head_dim, config.num_attention_heads
        for head in range(heads):
            group = head * config.num_key_value_heads // heads
            q = rotated(normed.linear(*columns(attention.q_proj, head, dim)), theta)
            k = rotated(normed.linear(*columns(attention.k_proj, group, dim)), theta)
            v = normed.linear(*columns(attention.v_proj, group, dim))
            alpha = attended(q, k, dim**-0.5, causal=True)
            yield (layer, head), q, k, dim**-0.5, alpha
            write = alpha @ v.total() @ attention.o_proj.weight.T[head * dim : (head + 1) * dim]
            x = x.plus(f"decoder {layer + 1}-{head + 1}", write)
        x = x.plus(
            f"decoder {layer + 1} feed-forward",
            block.mlp(x.normed(block.post_attention_layernorm, centred=False).total()),
        )


def bert_heads(model, ids):
    base = model.base_model
    table = base.embeddings
    x = Parts({
        "encoder tokens": table.word_embeddings(ids),
        "encoder positions": table.position_embeddings(torch.arange(len(ids))),
        "encoder embeddings": table.token_type_embeddings(torch.zeros_like(ids)),
    }).normed(table.LayerNorm, centred=True)  # fmt: skip
    x["encoder embeddings"] = x["encoder embeddings"] + x.pop("biases")
    for layer, block in enumerate(base.encoder.layer):
        attention, output = block.attention.self, block.attention.output
        dim = attention.attention_head_size
        more = x
        for head in range(attention.num_attention_heads):
            q, k, v = (
                x.linear(*columns(linear, head, dim)) for linear in (attention.query, attention.key, attention.value)
            )
            alpha = attended(q, k, dim**-0.5, causal=False)
            yield (layer, head), q, k, dim**-0.5, alpha
            write = alpha @ v.total() @ output.dense.weight.T[head * dim : (head + 1) * dim]
            more = more.plus(f"encoder {layer + 1}-{head + 1}", write)
        x = more.plus("biases", output.dense.bias.expand(len(ids), -1)).normed(output.LayerNorm, centred=True)
        dense, norm = block.output.dense, block.output.LayerNorm
        x = x.plus(f"encoder {layer + 1} feed-forward", block.intermediate(x.total()) @ dense.weight.T)
        x = x.plus("biases", dense.bias.expand(len(ids), -1)).normed(norm, centred=True)


ORACLES = {"gpt2": gpt2_heads, "llama": llama_heads, "bert": bert_heads}


def loud(kind):
    """Norms and biases that differ from one and zero."""
    subject = tiny_subject(kind)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in subject.model.named_parameters():
            if "norm" in name.lower() or "ln_" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return subject


def ids_of(subject, example):
    return subject.encode([example]).inputs["input_ids"][0]


@pytest.mark.parametrize("kind", ORACLES)
@torch.no_grad()
def test_the_lens_equals_a_model_written_out_in_parts(kind):
    subject = loud(kind)
    data = lo.look(subject, TEXTS, ["composition"], progress=False)["composition"].data
    wanted = {}
    for example in TEXTS:
        for (layer, head), query, key, scale, alpha in ORACLES[kind](subject.model, ids_of(subject, example)):
            rows = [i for i in range(len(alpha)) if kind == "bert" or i > 0]
            if not rows:
                continue
            sums = {}
            for i in rows:
                seen = range(len(alpha)) if kind == "bert" else range(i + 1)
                for j in seen:
                    beyond = (float(alpha[i, j]) - 1 / len(seen)) * scale / len(rows)
                    for name, part in query.items():
                        sums["query", name] = sums.get(("query", name), 0) + beyond * float(part[i] @ key.total()[j])
                    for name, part in key.items():
                        sums["key", name] = sums.get(("key", name), 0) + beyond * float(query.total()[i] @ part[j])
            for (side, name), value in sums.items():
                wanted.setdefault((layer, head, side, name), []).append(value)
    stack = "encoder" if kind == "bert" else "decoder"
    for (layer, head, side, name), values in wanted.items():
        at = {"stack": stack, "layer": layer + 1, "head": head + 1, "way": side}
        of_head = name in data["head_a"].values
        variable, axis = ("composition", "head_a") if of_head else ("parts", "writer")
        found = [float(data[f"{variable}{tail}"].sel(at | {axis: name})) for tail in ("", "_se", "_count")]
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert found == pytest.approx([np.mean(values), error, len(values)], rel=1e-6, abs=1e-7)
    together = data["parts"].sel(writer="heads")
    np.testing.assert_allclose(together, data["composition"].sum("head_a"), atol=1e-9)
    both = data["parts"].sum("writer")
    for side in ("query", "key"):
        np.testing.assert_allclose(both.sel(way=side), data["advantage"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ORACLES)
@torch.no_grad()
def test_one_pair_equals_a_model_written_out_in_parts(kind):
    subject, text = loud(kind), TEXTS[0]
    for (layer, head), query, key, scale, alpha in ORACLES[kind](subject.model, ids_of(subject, text)):
        found = lo.why(subject, text, f"{layer + 1}.{head + 1}", query=5, key=3)
        names = [str(writer) for writer in found.writers]
        seen = range(len(alpha)) if kind == "bert" else range(6)
        assert set(query) | set(key) <= {*names, "biases"}
        for a, row in enumerate(names):
            for b, column in enumerate(names):
                zero = torch.zeros_like(query.total())
                q, k = query.get(row, zero), key.get(column, zero)
                assert float(found.parts[a, b]) == pytest.approx(float(scale * q[5] @ k[3]), rel=1e-6, abs=1e-7)
                mean = sum(float(scale * q[5] @ k[j]) for j in seen) / len(seen)
                assert float(found.mean[a, b]) == pytest.approx(mean, rel=1e-6, abs=1e-7)
        assert found.weight == pytest.approx(float(alpha[5, 3]), rel=1e-6)
        assert float(found.parts.sum()) == pytest.approx(found.score, rel=1e-6, abs=1e-7)  # RMSNorms are float32


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_sum_in_every_family_or_it_is_refused_by_name(family):
    subject = tiny_subject(family)
    if family == "deberta":  # it keeps biases beside its maps
        with pytest.raises(CaptureError, match=r"What parts of 'tiny deberta'.*is not known"):
            lo.look(subject, TEXTS, ["composition"], progress=False)
        return
    stream = ResidualStream(subject, subject.encode(TEXTS))
    for call in stream.calls.values():
        for tensor in (call.query, call.scores.key, call.grouped_value):
            rate = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=tensor.dtype)
            found, whole = stream.parts(tensor, rate).sum(-1), (tensor.detach() * rate).flatten(1)
            assert bool(((found - whole.sum(-1)).abs() <= 1e-6 * whole.abs().sum(-1)).all())


def test_writers_that_come_later_write_nothing():
    subject = gpt2()
    data = lo.look(subject, TEXTS, ["composition"], progress=False)["composition"].data
    for writer in (str(each) for each in writers(subject) if each.kind == "heads"):
        layer = int(writer.split()[1].split("-")[0])
        before = data["composition"].sel(head_a=writer, layer=slice(1, layer))
        assert not bool((before != 0).any())
        assert layer == len(data["layer"]) or bool((data["composition"].sel(head_a=writer) != 0).any())


def test_only_words_count_as_keys():
    subject = tiny_subject("bert")
    result = lo.look(subject, TEXTS, ["composition:keys=words"], progress=False)["composition"]
    assert result.data.attrs["keys"] == "words"
    advantage = []
    for example in TEXTS:
        call = subject.trace(example).calls[subject.sites[0]]
        weights, scores = call.weights[0, 0, :, 1:-1], (call.query @ call.key.mT * call.scores.scale)[0, 0, :, 1:-1]
        if weights.shape[1] > 1:
            weights = weights / weights.sum(-1, keepdim=True)
            advantage.append(float(((weights - 1 / weights.shape[1]) * scores).sum(-1).mean()))
    found = result.data.sel(stack="encoder", layer=1, head=1)
    assert float(found["advantage"]) == pytest.approx(np.mean(advantage))
    assert int(found["advantage_count"]) == len(advantage) == 4  # one text has a single word


def test_sentences_and_figures_of_any_model():
    result = lo.look(classifier(), ["the cat sat on the mat", "a dog ran"], ["composition"], progress=False)
    assert list(findings(result))
    assert figures_of(result["composition"])


@pytest.mark.parametrize("name", ["composition", "parts"])
def test_all_heads_writers_and_sides_are_corrected_together(name):
    data = lo.look(gpt2(), TEXTS, ["composition"], progress=False)["composition"].data
    values, errors, counts, q = (data[f"{name}{tail}"].values.ravel() for tail in ("", "_se", "_count", "_q"))
    there = np.abs(np.nan_to_num(values)) > 1e-7 * np.nanmax(np.abs(values))
    p = 2 * t.sf(np.abs(values[there] / errors[there]), counts[there] - 1)
    assert q[there] == pytest.approx(false_discovery_control(p), rel=1e-9)
    assert np.isnan(q[~there]).all()
    assert data[f"{name}_q_count"].values.ravel().tolist() == there.astype(int).tolist()


def test_a_query_that_does_not_exist_or_may_not_see_the_key_is_one_line():
    subject = gpt2()
    with pytest.raises(UserError, match="There is no query 9: the text has"):
        lo.why(subject, "the cat sat", "1.1", query=9)
    with pytest.raises(UserError, match="The query 0 may not see the key 2"):
        lo.why(subject, "the cat sat", "1.1", query=0, key=2)
