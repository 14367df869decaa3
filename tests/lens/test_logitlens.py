"""The logit lens against loops over texts, positions and layers in float64, written from its definition."""

import math

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, MAKERS, classifier, examples
from tiny import subject as tiny_subject

import lorgnette as lo
from lorgnette.attending import Recorder
from lorgnette.errors import UserError
from lorgnette.lens.logitlens.predictions import divergence, midrank
from lorgnette.reporting import figures_of, findings


def mean_and_error(values):
    values = np.array(values, dtype=float)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return values.mean(), error, len(values)


def rank_of(logits, token):
    larger = sum(value > logits[token] for value in logits)
    equal = sum(value == logits[token] for value in logits)
    return larger + (equal + 1) / 2


def by_chance(tops, finals):
    """Over all ordered pairs of different positions."""
    n = len(tops)
    return sum(tops[i] == finals[j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


@torch.no_grad()
def gpt2_rows(model, ids, attention):
    """Logits of every state of one text, [state][position][token], and each head's, by layer and head."""
    transformer = model.transformer
    hidden = model(ids, attention_mask=attention, output_hidden_states=True).hidden_states
    states = [*hidden[:-1], None]

    def keep(module, arguments, output):
        states[-1] = output if isinstance(output, torch.Tensor) else output[0]

    hook = transformer.h[-1].register_forward_hook(keep)
    logits = model(ids, attention_mask=attention).logits[0]
    hook.remove()
    norm, unembedding = transformer.ln_f, transformer.wte.weight
    rows = []
    for state in states:
        x = state[0]
        centred = x - x.mean(-1, keepdim=True)
        normed = norm.weight * centred / (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt() + norm.bias
        rows.append(normed @ unembedding.T)
    torch.testing.assert_close(rows[-1], logits, rtol=1e-12, atol=1e-12)
    scale = (states[-1][0].var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return rows, lambda written: (written - written.mean(-1, keepdim=True)) / scale * norm.weight @ unembedding.T


@pytest.fixture(scope="module")
def looked():
    subject = MAKERS["gpt2"]()
    return subject, lo.look(subject, EXAMPLES, ["logitlens:positions=0"], progress=False)["logitlens"]


def test_every_state_is_what_the_definition_says(looked):
    subject, result = looked
    values = {}
    depths = []
    for example in EXAMPLES:
        inputs = subject.encode([example]).inputs
        ids = inputs["input_ids"]
        if ids.shape[1] < 2:
            continue
        rows, _ = gpt2_rows(subject.model, ids, inputs["attention_mask"])
        right = ids[0, 1:].tolist()
        finals = rows[-1][:-1].argmax(-1).tolist()
        tops = [row[:-1].argmax(-1).tolist() for row in rows]
        first = [
            min(k for k in range(len(rows)) if all(tops[later][i] == finals[i] for later in range(k, len(rows))))
            for i in range(len(right))
        ]
        depths.append(np.mean(first))
        final = rows[-1][:-1].softmax(-1)
        for number, row in enumerate(rows):
            p = row[:-1].softmax(-1)
            ranks = [rank_of(row[i].tolist(), token) for i, token in enumerate(right)]
            mine = {
                "agreement": np.mean([a == b for a, b in zip(tops[number], finals, strict=True)]),
                "settled": np.mean([number >= each for each in first]),
                "rank": np.mean(ranks),
                "reciprocal_rank": np.mean([1 / rank for rank in ranks]),
                "loss": np.mean([-math.log(p[i, token]) for i, token in enumerate(right)]),
                "divergence": float((final * (final.log() - p.log())).sum(-1).mean()),
            }
            if len(right) > 1:
                mine["chance"] = by_chance(tops[number], finals)
                mine["excess"] = mine["agreement"] - mine["chance"]
            for name, value in mine.items():
                values.setdefault((name, number), []).append(value)
    for (name, number), each in values.items():
        for tail, expected in zip(("", "_se", "_count"), mean_and_error(each), strict=True):
            found = float(result.data[f"{name}{tail}"].sel(stack="decoder", state=number))
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), (name, tail, number)
    assert float(result.data["depth"]) == pytest.approx(np.mean(depths))


def test_the_last_row_is_the_model(looked):
    last = looked[1].data.isel(state=-1).sel(stack="decoder")
    assert float(last["agreement"]) == float(last["settled"]) == 1.0
    assert float(last["divergence"]) == 0.0


def test_every_head_is_what_the_definition_says(looked):
    subject, result = looked
    values = {}
    for example in EXAMPLES:
        batch = subject.encode([example])
        ids = batch.inputs["input_ids"]
        if ids.shape[1] < 2:
            continue
        rows, through = gpt2_rows(subject.model, ids, batch.inputs["attention_mask"])
        recorder = Recorder.of("context")
        with torch.no_grad(), subject.tapped(recorder):
            subject.run(batch)
        right, finals = ids[0, 1:].tolist(), rows[-1][:-1].argmax(-1).tolist()
        n = len(right)
        for site, record in recorder.records.items():
            context = record["context"][0]  # [head query dim]
            weight = subject.model.transformer.h[site.layer].attn.c_proj.weight
            width = context.shape[-1]
            for head, z in enumerate(context):
                with torch.no_grad():
                    logits = through(z @ weight[head * width : (head + 1) * width])[:-1]
                tops = logits.argmax(-1).tolist()
                mine = {
                    "head_agreement": np.mean([a == b for a, b in zip(tops, finals, strict=True)]),
                    "head_reciprocal_rank": np.mean([1 / rank_of(logits[i].tolist(), right[i]) for i in range(n)]),
                    "head_logit": np.mean([float(logits[i, right[i]] - logits[i].mean()) for i in range(n)]),
                }
                if n > 1:
                    mine["head_excess"] = mine["head_agreement"] - by_chance(tops, finals)
                    mine["head_contrast"] = np.mean([
                        float(logits[i, right[i]]) - np.mean([float(logits[i, right[j]]) for j in range(n) if j != i])
                        for i in range(n)
                    ])  # fmt: skip
                for name, value in mine.items():
                    values.setdefault((name, site.layer + 1, head + 1), []).append(value)
    assert len(values) == 5 * subject.heads * len(subject.sites)
    for (name, layer, head), each in values.items():
        for tail, expected in zip(("", "_se", "_count"), mean_and_error(each), strict=True):
            found = float(result.data[f"{name}{tail}"].sel(stack="decoder", layer=layer, head=head))
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-10), (name, tail, layer, head)


def test_a_constant_that_a_head_always_adds_is_no_contrast():
    """A head that writes the same vector everywhere favours some tokens, but none more where it is right."""
    subject = MAKERS["gpt2"]()
    attention = subject.model.transformer.h[-1].attn
    with torch.no_grad():
        attention.c_attn.weight[:, 2 * attention.embed_dim :] = 0.0
        attention.c_attn.bias[2 * attention.embed_dim :] = 1.0
        subject.model.transformer.ln_f.weight.fill_(1.0)
    plain = lo.look(subject, EXAMPLES, ["logitlens:positions=0"], progress=False)["logitlens"].data
    here = {"stack": "decoder", "layer": len(subject.sites)}
    assert float(abs(plain["head_logit"].sel(here)).max()) > 10 * float(abs(plain["head_contrast"].sel(here)).max())


def test_masked_and_translation_models_are_read_where_they_predict():
    for subject, texts in ((tiny_subject("bert-mlm"), examples((20, 9, 15))), (MAKERS["marian"](), EXAMPLES)):
        result = lo.look(subject, texts, ["logitlens"], progress=False)["logitlens"]
        stack = "encoder" if result.data.attrs["task"] == "masked" else "decoder"
        own = result.data.sel(stack=stack)
        assert float(own["agreement"].isel(state=-1)) == 1.0
        assert bool(own["head_contrast"].notnull().all())
        assert int(own["agreement_count"].max()) == len(texts)
        assert figures_of(result)
        assert "nan" not in " ".join(each.text for each in findings({"logitlens": result}))
    assert bool(result.data["head_contrast"].sel(stack="encoder").isnull().all())  # no direct path
    assert bool(result.data["agreement"].sel(stack="encoder").isnull().all())


def test_fewer_positions_are_drawn_for_the_heads_alone():
    subject = MAKERS["gpt2"]()
    few, every = (
        lo.look(subject, EXAMPLES, [f"logitlens:positions={n}"], progress=False)["logitlens"].data for n in (2, 0)
    )
    assert few["agreement"].equals(every["agreement"])
    assert not few["head_logit"].equals(every["head_logit"])
    without = lo.look(subject, EXAMPLES, ["logitlens:heads=false"], progress=False)["logitlens"]
    assert "head_logit" not in without.data
    assert figures_of(without)


def test_memory_is_that_of_one_state(monkeypatch):
    """With room for few logits, predictions are read in parts: the numbers are the same."""
    subject = MAKERS["gpt2"]()
    whole = lo.look(subject, EXAMPLES, ["logitlens:positions=0"], progress=False)["logitlens"].data
    monkeypatch.setattr("lorgnette.explaining.output_head.MOST", 1)
    parts = lo.look(subject, EXAMPLES, ["logitlens:positions=0"], progress=False)["logitlens"].data
    for name in ("agreement", "excess", "rank", "divergence", "head_contrast", "head_excess"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [(classifier, "", "is a classifier"), (MAKERS["bert"], "", "no output head"),
     (MAKERS["gpt2"], ":positions=1", "must be 2 or more"), (MAKERS["gpt2"], ":positions=-3", "must be 2 or more")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_line(make, options, words):
    with pytest.raises(UserError, match=words) as caught:
        lo.look(make(), EXAMPLES, [f"logitlens{options}"], progress=False)
    assert "\n" not in str(caught.value)


def test_ranks_and_divergences_of_single_predictions():
    logits = torch.tensor([[[1.0, 3.0, 3.0, 0.0]]], dtype=torch.float64)
    ranks = [float(midrank(logits, torch.tensor([[token]]))) for token in range(4)]
    assert ranks == [3.0, 1.5, 1.5, 4.0]
    p, q = logits.log_softmax(-1), torch.tensor([[[0.0, -math.inf, 1.0, 1.0]]], dtype=torch.float64).log_softmax(-1)
    assert math.isinf(float(divergence(p, q)))
    assert float(divergence(q, p)) == pytest.approx(float((q.exp() * (q - p))[0, 0, [0, 2, 3]].sum()))
    assert float(divergence(p, p)) == 0.0
