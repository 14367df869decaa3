"""The weights lens against loops, and on planted heads."""

import math

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, bert, gpt2, marian, planted

import lorgnette as lo
from benchmarks.planted_heads import HEADS
from lorgnette.errors import UserError


def rows_of(subject, example, stack):
    """The weights of one text, and the flags of its queries and keys, one text at a time (no padding)."""
    trace = subject.trace(example)
    query_tokens, key_tokens = trace.tokens(stack)
    return trace[f"{stack}.weights"].double(), query_tokens, key_tokens


def slow(subject, stack):
    """Per layer and head, the mean over texts of the mean over queries, from the definitions."""
    per_text = []
    for example in EXAMPLES:
        weights, query_tokens, key_tokens = rows_of(subject, example, stack)
        layers, heads, queries, keys = weights.shape
        causal = stack == "decoder"
        out = {}
        for layer in range(layers):
            for head in range(heads):
                w = weights[layer, head].tolist()
                entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in w]
                seen = [i + 1 if causal else keys for i in range(queries)]
                normalised = [e / math.log(n) for e, n in zip(entropies, seen, strict=True) if n > 1]
                plain = [k for k in range(keys) if not key_tokens.special[0, k]]
                words = [i for i in range(queries) if not query_tokens.special[0, i]]
                column = [sum(w[i][k] for i in range(queries)) / queries for k in range(keys)]
                values = {
                    "entropy": np.mean(entropies),
                    "entropy_normalised": np.mean(normalised) if normalised else None,
                    "peak": np.mean([max(row) for row in w]),
                    "confidence": np.mean([max((w[i][k] for k in plain), default=0) for i in words]) if words else None,
                    "sink": max(column),
                    "special": np.mean([sum(row[k] for k in set(range(keys)) - set(plain)) for row in w])
                    if len(plain) < keys
                    else np.mean([row[0] for row in w]),
                }
                for name, flags in key_tokens.categories.items():
                    chosen = [k for k in range(keys) if flags[0, k]]
                    there = chosen or name in ("punctuation", "period_comma", "other")
                    values[name] = sum(column[k] for k in chosen) if there else None
                if stack != "cross":
                    for name, offset in (("self", 0), ("previous", -1), ("next", 1)):
                        near = [w[i][i + offset] for i in range(queries) if 0 <= i + offset < keys]
                        values[name] = np.mean(near) if near else None
                out[layer, head] = values
        per_text.append(out)
    return per_text


@pytest.mark.parametrize("make", [bert, gpt2, marian])
def test_against_loops(make):
    subject = make()
    data = lo.look(subject, EXAMPLES, ["weights"], progress=False)["weights"].data
    for stack in data["stack"].values:
        per_text = slow(subject, str(stack))
        for (layer, head), values in per_text[0].items():
            for name in values:
                given = [text[layer, head][name] for text in per_text]
                given = [value for value in given if value is not None]
                here = {"stack": stack, "layer": layer + 1, "head": head + 1}
                variable = name if name in data else "mass"
                here |= {} if name in data else {"category": name}
                assert int(data[f"{variable}_count"].sel(here)) == len(given)
                if not given:
                    assert math.isnan(float(data[variable].sel(here)))
                    continue
                assert float(data[variable].sel(here)) == pytest.approx(np.mean(given), abs=1e-9)
                if len(given) > 1:
                    error = np.std(given, ddof=1) / math.sqrt(len(given))
                    assert float(data[f"{variable}_se"].sel(here)) == pytest.approx(error, abs=1e-9)


def test_by_token_pools_the_queries():
    subject = bert()
    lens = lo.lens.get("weights", by="token")
    data = lo.look(subject, EXAMPLES, [lens], progress=False)["weights"].data
    traces = [subject.trace(example) for example in EXAMPLES]
    entropies = torch.cat([torch.special.entr(t["weights"]).sum(-1) for t in traces], dim=-1)
    np.testing.assert_allclose(data.entropy.values[0], entropies.mean(-1).numpy(), atol=1e-9)
    with pytest.raises(UserError, match="'by' of the lens 'weights' must be 'text' or 'token'"):
        lo.lens.get("weights", by="word")


def test_the_four_kinds_of_key_share_out_the_weight():
    data = lo.look(bert(), EXAMPLES, ["weights"], progress=False)["weights"].data
    total = data.mass.sel(category=["cls", "sep", "period_comma", "other"]).sum("category")
    np.testing.assert_allclose(total.values, 1.0, atol=1e-9)


def test_planted_heads_are_found_and_the_control_has_none():
    subject, texts = planted()
    data = lo.look(subject, texts, ["weights"], progress=False)["weights"].data.isel(stack=0, layer=0)
    mass = {name: data.mass.isel(head=HEADS.index(name)) for name in HEADS}
    assert float(mass["previous"].sel(category="previous")) > 0.99
    assert float(mass["next"].sel(category="next")) > 0.99
    assert float(mass["sep"].sel(category="sep")) > 0.99
    assert float(mass["first"].sel(category="first")) > 0.99
    assert float(data.entropy_normalised.isel(head=HEADS.index("uniform"))) == pytest.approx(1.0, abs=1e-5)
    assert float(data.sink.isel(head=HEADS.index("sep"))) > 0.99
    control, texts = planted(control=True)
    data = lo.look(control, texts, ["weights"], progress=False)["weights"].data
    assert float(data.mass.sel(category=["previous", "next", "self", "sep", "first"]).max()) < 0.6
    assert float(data.entropy_normalised.max()) < 0.995
