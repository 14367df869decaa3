"""Edges against a GPT-2 in which every reader has a residual stream of its own, and every edge a scale."""

import math
import re

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control, spearmanr, t
from tiny import FAMILIES, examples, gpt2, tokenizer
from tiny import subject as tiny_subject
from transformers import MixtralConfig, MixtralForCausalLM

import lorgnette as lo
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining.backward import run_options
from lorgnette.explaining.edges import EdgeStream
from lorgnette.explaining.rules import Heads
from lorgnette.reporting import figures_of, findings
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject

TEXTS = examples((9, 4, 12, 7))


def loud(kind="gpt2"):
    subject = tiny_subject(kind)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in subject.model.named_parameters():
            if "ln_" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return subject


class Unrolled:
    """GPT-2 on one text; `scale[a, r]` is how much of writer a is taken away on its way to reader r."""

    def __init__(self, model, ids, means):
        self.model, self.ids, self.means = model, ids, means
        self.writes, self.scale, self.edges = {}, {}, []

    def read(self, reader):
        """The residual stream that this reader reads; biases are always there."""
        x = self.fixed
        for name, write in self.writes.items():
            edge = (name, reader)
            self.edges.append(edge)
            taken = self.scale.get(edge, 0.0)
            away = self.whole[name] - self.means.get(name, 0.0) if name in self.whole else 0.0
            x = x + write - taken * away
        return x

    def logits(self, scale=None, whole=None):
        """`whole` are the writes of the intact pass: what is taken away does not change with the pass."""
        self.scale, self.whole, self.edges = scale or {}, whole or {}, []
        transformer = self.model.transformer
        self.writes = {
            "decoder tokens": transformer.wte(self.ids),
            "decoder positions": transformer.wpe(torch.arange(len(self.ids))),
        }
        self.fixed = 0.0
        for number, block in enumerate(transformer.h, 1):
            self.attend(number, block.ln_1, block.attn)
            middle = block.mlp.act(block.mlp.c_fc(block.ln_2(self.read(f"decoder {number} feed-forward"))))
            self.writes[f"decoder {number} feed-forward"] = middle @ block.mlp.c_proj.weight
            self.fixed = self.fixed + block.mlp.c_proj.bias
        return transformer.ln_f(self.read("logits")) @ transformer.wte.weight.T

    def attend(self, number, norm, attention):
        width, heads = attention.embed_dim, attention.num_heads
        dim, n = width // heads, len(self.ids)
        writes = {}
        for head in range(heads):
            name = f"decoder {number}-{head + 1}"
            query, key, value = (
                norm(self.read(f"{name} {way}"))
                @ attention.c_attn.weight[:, part * width + head * dim : part * width + (head + 1) * dim]
                + attention.c_attn.bias[part * width + head * dim : part * width + (head + 1) * dim]
                for part, way in enumerate(("query", "key", "value"))
            )
            scores = (query @ key.T / math.sqrt(dim)).masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
            rows = attention.c_proj.weight[head * dim : (head + 1) * dim]
            writes[name] = scores.softmax(-1) @ value @ rows
        self.writes |= writes
        self.fixed = self.fixed + attention.c_proj.bias


def goal(logits, intact):
    """The mean over positions of the logit that the intact model finds largest."""
    return logits.gather(-1, intact.argmax(-1)[:, None]).mean()


def texts_of(subject):
    return [subject.encode([example]).inputs["input_ids"][0] for example in TEXTS]


def means_of(subject):
    """Mean over all tokens of the corpus of what each part writes."""
    collected = {}
    for ids in texts_of(subject):
        unrolled = Unrolled(subject.model, ids, {})
        unrolled.logits()
        for name, write in unrolled.writes.items():
            collected.setdefault(name, []).append(write)
    return {name: torch.cat(several).mean(0) for name, several in collected.items()}


def attributions(subject, means):
    """By edge, the derivative of what is explained by how much of the edge is taken away, for each text."""
    out = {}
    for ids in texts_of(subject):
        unrolled = Unrolled(subject.model, ids, means)
        intact = unrolled.logits().detach()
        torch.testing.assert_close(intact, subject.model(ids[None]).logits[0], rtol=1e-9, atol=1e-9)
        whole = {name: write.detach() for name, write in unrolled.writes.items()}
        scale = {edge: torch.zeros((), dtype=torch.float64, requires_grad=True) for edge in unrolled.edges}
        value = goal(unrolled.logits(scale, whole), intact)
        for edge, slope in zip(scale, torch.autograd.grad(value, list(scale.values())), strict=True):
            out.setdefault(edge, []).append(-float(slope))
    return out


def exact(subject, means, edge):
    """What is explained, minus the same with all of one edge taken away, for each text."""
    out = []
    for ids in texts_of(subject):
        with torch.no_grad():
            unrolled = Unrolled(subject.model, ids, means)
            intact = unrolled.logits()
            whole = dict(unrolled.writes)
            out.append(float(goal(intact, intact) - goal(unrolled.logits({edge: 1.0}, whole), intact)))
    return out


def found_in(data, edge):
    """Value, error and count of an edge in a result."""
    writer, reader = edge
    of_head = "-" in writer.split(" ")[1] if len(writer.split(" ")) > 1 else False
    axis = "head_a" if of_head else "writer"
    if reader == "logits":
        if of_head:
            layer, head = map(int, writer.split(" ")[1].split("-"))
            name, at = "to_logits", {"stack": "decoder", "layer": layer, "head": head}
        else:
            name, at = "to_logits_from_parts", {"writer": writer}
    elif reader.endswith("feed-forward"):
        name = "to_feed_forward" if of_head else "to_feed_forward_from_parts"
        at = {"stack": "decoder", "layer": int(reader.split(" ")[1]), axis: writer}
    else:
        _, place, way = reader.split(" ")
        layer, head = map(int, place.split("-"))
        name = "attribution" if of_head else "from_parts"
        at = {"stack": "decoder", "layer": layer, "head": head, "way": way, axis: writer}
    return [float(data[f"{name}{tail}"].sel(at)) for tail in ("", "_se", "_count")]


@pytest.fixture(scope="module", params=["mean", "zero"])
def looked(request):
    subject = loud()
    result = lo.look(subject, TEXTS, [f"edges:ablation={request.param},strongest=9,drawn=12"], progress=False)["edges"]
    return subject, result, means_of(subject) if request.param == "mean" else {}


def test_every_attribution_is_the_derivative_by_the_scale_of_its_edge(looked):
    subject, result, means = looked
    wanted = attributions(subject, {name: mean.detach() for name, mean in means.items()})
    assert len(wanted) == 302  # 252 into heads, 33 into feed-forward parts, 17 to the output
    for edge, values in wanted.items():
        expected = [np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values)), len(values)]
        assert found_in(result.data, edge) == pytest.approx(expected, rel=1e-7, abs=1e-12), edge


def test_every_patched_edge_is_that_of_the_unrolled_model(looked):
    subject, result, means = looked
    names = result.data["edge"].values.tolist()
    assert len(set(names)) == 21
    for name in names:
        values = exact(subject, means, tuple(name.split(" → ")))
        found = [float(result.data[f"exact{tail}"].sel(edge=name)) for tail in ("", "_se", "_count")]
        expected = [np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values)), len(values)]
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-12), name
        assert float(result.data["estimated"].sel(edge=name)) == found_in(result.data, tuple(name.split(" → ")))[0]


def test_the_strongest_are_the_strongest_and_the_others_are_drawn_from_the_rest(looked):
    data = looked[1].data
    chosen = data["chosen"].values
    sizes = np.abs(data["estimated"].values)
    assert (chosen == "strongest").sum() == 9
    assert sizes[chosen == "strongest"].min() >= sizes[chosen == "drawn"].max()
    every = sorted((abs(found_in(data, edge)[0]) for edge in attributed(data)), reverse=True)
    assert sizes[chosen == "strongest"].tolist() == pytest.approx(every[:9])


def attributed(data):
    """All edges whose writers are heads or feed-forward parts."""
    layers, heads = data.sizes["layer"], data.sizes["head"]
    names = [f"decoder {a}-{b}" for a in range(1, layers + 1) for b in range(1, heads + 1)]
    for a in range(1, layers + 1):
        own = [name for name in names if int(name.split(" ")[1][0]) == a]
        for writer in (*own, f"decoder {a} feed-forward"):
            yield writer, "logits"
            first = a if writer in own else a + 1
            yield from ((writer, f"decoder {layer} feed-forward") for layer in range(first, layers + 1))
            later = [name for name in names if int(name.split(" ")[1][0]) > a]
            yield from ((writer, f"{reader} {way}") for reader in later for way in ("query", "key", "value"))


class Goal:
    """Any number that is linear in the logits."""

    def __init__(self, logits):
        generator = torch.Generator().manual_seed(0)
        self.weights = torch.randn(logits.shape[1:], generator=generator, dtype=logits.dtype)

    def __call__(self, logits):
        return (logits * self.weights).flatten(1).sum(-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_edges_of_a_head_sum_to_its_effect_by_gradient(family):
    subject = tiny_subject(family)
    batch, tap = subject.encode(TEXTS), Heads()
    with torch.enable_grad(), subject.tapped(tap):
        outputs = subject.run(batch, **run_options(subject))
        if "logits" not in outputs:
            return  # a model without a head has no output to explain
        slopes = torch.autograd.grad(Goal(outputs.logits)(outputs.logits).sum(), list(tap.outputs.values()),
                                     allow_unused=True)  # fmt: skip
    stream = EdgeStream(subject, batch, Goal)
    total = sum(parts for _, parts in stream.edges())
    for (site, output), slope in zip(tap.outputs.items(), slopes, strict=True):
        if site.stack == "pooler" or slope is None:
            continue
        wanted = (output.detach() * slope).sum((-1, -2))
        own = [
            stream.place[writer]
            for writer in stream.writers
            if (writer.kind, writer.stack, writer.layer) == ("heads", site.name, site.layer)
        ]
        torch.testing.assert_close(total[:, own], wanted, rtol=1e-5, atol=1e-6 * float(wanted.abs().max()))


def test_attributions_alone_take_no_second_pass(capsys):
    subject = gpt2()
    whole = lo.look(subject, TEXTS, ["edges:strongest=2,drawn=0"])["edges"].data
    assert "up to 2 passes and 2 partial ones for the patched edges" in capsys.readouterr().err
    alone = lo.look(subject, TEXTS, ["edges:strongest=0,drawn=0"])["edges"].data
    assert "patched" not in capsys.readouterr().err
    assert "exact" not in alone
    np.testing.assert_allclose(alone["attribution"], whole["attribution"])


def test_sentences_and_figures():
    result = lo.look(gpt2(), TEXTS, ["edges:strongest=4,drawn=4"], progress=False)
    said = " ".join(each.text for each in findings(result))
    assert "the attribution ranks the exact effects with ρ = " in said
    assert [figure.name for figure in figures_of(result["edges"])] == ["strongest", "predicted", "to_logits"]


def test_a_model_without_output_is_refused_in_one_line():
    with pytest.raises(UserError, match="has no loss: it has no output head"):
        lo.look(tiny_subject("bert"), TEXTS, ["edges"], progress=False)


def test_edges_from_heads_alone():
    data = lo.look(gpt2(), TEXTS, ["edges:strongest=5,drawn=5,among=heads"], progress=False)["edges"].data
    assert all("feed-forward →" not in name for name in data["edge"].values.tolist())
    sizes = abs(data["estimated"].values[:5])
    heads = np.concatenate([abs(data[name].values).ravel() for name in ("attribution", "to_feed_forward", "to_logits")])
    np.testing.assert_allclose(sizes, np.sort(heads)[::-1][:5])


@pytest.mark.parametrize("kind", ["gpt2", "marian", "bert-mlm"])
def test_texts_one_after_the_other_give_the_same(kind, monkeypatch):
    """What all parts write may not fit into memory: a batch then goes through in parts."""
    subject = tiny_subject(kind)
    wanted = ["composition", "edges:strongest=3,drawn=3"]
    whole = lo.look(subject, TEXTS, wanted, progress=False)
    monkeypatch.setattr("lorgnette.explaining.stream.MOST", 1)
    parts = lo.look(subject, TEXTS, wanted, progress=False)
    for name in ("composition", "edges"):
        for variable, array in whole[name].data.data_vars.items():
            if array.dtype.kind == "f":
                np.testing.assert_allclose(parts[name].data[variable], array, rtol=1e-9, atol=1e-12, err_msg=variable)


@pytest.mark.parametrize("experts", ["eager", None])
@pytest.mark.parametrize("lens", ["composition", "edges"])
def test_mixtures_of_experts_are_refused_by_name(lens, experts):
    config = MixtralConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
        experts_implementation=experts,
    )  # fmt: skip
    torch.manual_seed(0)
    subject = Subject(MixtralForCausalLM(config).eval(), tokenizer("bert"), name="experts")
    with pytest.raises(CaptureError, match=r"'experts' .*is not known"):
        lo.look(subject, TEXTS, [lens], progress=False)


def test_the_interval_of_alike_is_that_of_a_bootstrap_over_texts(looked):
    """Each text's numbers written out, weighted, averaged and ranked, draw by draw."""
    subject, result, means = looked
    data = result.data
    estimated = attributions(subject, {name: mean.detach() for name, mean in means.items()})
    for how in ("strongest", "drawn"):
        edges = [tuple(name.split(" → ")) for name in data["edge"].values[data["chosen"].values == how].tolist()]
        both = np.array([[estimated[edge] for edge in edges], [exact(subject, means, edge) for edge in edges]])
        drawn = []
        weights = [np.random.default_rng(text_key("edges", 0, one.id)).exponential(size=400) for one in TEXTS]
        for draw in np.array(weights).T:
            mean = (both * (draw / draw.sum())).sum(-1)
            drawn.append(spearmanr(*mean).statistic)
        low, high = np.quantile(drawn, [0.025, 0.975])
        found = [float(data[f"alike_{end}"].sel(choice=how)) for end in ("low", "high")]
        assert found == pytest.approx([low, high], abs=1e-9)


def test_all_edges_are_corrected_together(looked):
    data = looked[1].data
    names = [name for name in data if f"{name}_q" in data and name != "exact"]
    assert len(names) == 6
    values, errors, counts, q = (
        np.concatenate([data[f"{name}{tail}"].values.ravel() for name in names]) for tail in ("", "_se", "_count", "_q")
    )
    there = np.abs(np.nan_to_num(values)) > 1e-7 * np.nanmax(np.abs(values))
    p = 2 * t.sf(np.abs(values[there] / errors[there]), counts[there] - 1)
    assert q[there] == pytest.approx(false_discovery_control(p), rel=1e-9)
    assert np.isnan(q[~there]).all()
    p = 2 * t.sf(np.abs(data["exact"] / data["exact_se"]), data["exact_count"] - 1)
    assert data["exact_q"].values == pytest.approx(false_discovery_control(p), rel=1e-9)


def test_sentences_say_what_is_sure_and_on_which_texts_edges_were_chosen(looked):
    said = " ".join(each.text for each in findings({"edges": looked[1]}))
    assert "of 9 edges strongest by attribution" in said
    assert "(false discovery rate 5 % over all patched edges)" in said
    assert re.search(
        r"ρ = −?[\d.]+ \(95 % interval over texts −?[\d.]+ to −?[\d.]+\); they were chosen on the same", said
    )


def test_one_text_has_no_interval():
    data = lo.look(gpt2(), TEXTS[:1], ["edges:strongest=4,drawn=4"], progress=False)["edges"].data
    assert np.isnan(data["alike_low"].values).all()
    assert (data["alike_low_count"].values == 0).all()
    assert np.isfinite(data["alike"].values).any()
