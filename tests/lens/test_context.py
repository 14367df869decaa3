"""The lens `context` against loops in float64, written from its definition."""

import math
import random

import numpy as np
import pytest
import torch
from tiny import classifier, examples, gpt2
from tiny import subject as tiny_subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.ablation.rerun import Rerun
from lorgnette.lens.context.retrieval import retrieval_scores
from lorgnette.lens.context.windowed import Stream
from lorgnette.reporting import findings

SINKS, WINDOWS, WINDOW = 1, (2, 4), 3
TEXTS = examples((9, 4, 12, 7))


class Masked(lo.Tap):
    """Heads of one layer whose weights are computed key by key, over the first and the last tokens alone."""

    def __init__(self, layer, heads):
        self.layer, self.heads = layer, heads

    def weights(self, call, weights):
        if call.site.layer != self.layer:
            return weights
        out = weights.clone()
        for head in self.heads:
            for i in range(weights.shape[2]):
                seen = [j for j in range(i + 1) if j < SINKS or i - j < WINDOW]
                scores = [float(call.query[0, head, i] @ call.key[0, head, j]) * call.scores.scale for j in seen]
                total = sum(math.exp(score) for score in scores)
                out[0, head, i] = 0.0
                for j, score in zip(seen, scores, strict=True):
                    out[0, head, i, j] = math.exp(score) / total
        return out


def losses(subject, ids):
    """−log p of every token that a distant query predicts."""
    logits = subject.model(ids).logits[0]
    each = [
        float(torch.logsumexp(logits[i], 0) - logits[i, ids[0, i + 1]]) for i in range(SINKS + WINDOW, ids.shape[1] - 1)
    ]
    return sum(each) / len(each) if each else None


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@torch.no_grad()
def test_the_lens_equals_loops(kind):
    subject = gpt2() if kind == "gpt2" else tiny_subject("llama")
    subject.model.double()
    options = {"sinks": SINKS, "windows": WINDOWS, "window": WINDOW}
    data = lo.look(subject, TEXTS, [lo.lens.get("context", **options)], progress=False)["context"].data
    site = subject.anatomy.sites[1]
    each = site.heads // site.groups
    wanted = {name: [] for name in ("loss", "loss_change", "shared_change", "sink_mass", "local_mass", "far_mass")}
    for example in TEXTS:
        ids = subject.encode([example]).inputs["input_ids"]
        intact = losses(subject, ids)
        weights = subject.trace(example)[f"decoder.{site.site.layer + 1}.weights"].double()
        rows = [weights[1, i] for i in range(SINKS + 4, ids.shape[1])]
        if rows:
            far = [float(row[SINKS : i - 3].sum()) for i, row in enumerate(rows, SINKS + 4)]
            local = [float(row[i - 3 : i + 1].sum()) for i, row in enumerate(rows, SINKS + 4)]
            wanted["far_mass"].append(np.mean(far))
            wanted["local_mass"].append(np.mean(local))
            wanted["sink_mass"].append(np.mean([float(row[:SINKS].sum()) for row in rows]))
        if intact is None:
            continue
        wanted["loss"].append(intact)
        for name, heads in (("loss_change", [1]), ("shared_change", range(1 // each * each, 1 // each * each + each))):
            with subject.tapped(Masked(site.site.layer, heads)):
                wanted[name].append(losses(subject, ids) - intact)
    for name, values in wanted.items():
        if name not in data:
            assert each == 1
            continue
        at = {} if name == "loss" else {"stack": "decoder", "layer": site.site.layer + 1, "head": 2}
        at |= {"window": 4} if name.endswith("mass") else {}
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert float(data[name].sel(at)) == pytest.approx(np.mean(values), abs=1e-10)
        assert float(data[f"{name}_se"].sel(at)) == pytest.approx(error, abs=1e-10)
        assert int(data[f"{name}_count"].sel(at)) == len(values)
    masses = data["sink_mass"] + data["local_mass"] + data["far_mass"]
    np.testing.assert_allclose(masses.values, 1.0, atol=1e-12)


def copies(weights, ids):
    """Score, control and excess of one head in one text: query by query, and with every next token dealt to it."""
    length = len(ids)
    distant = range(SINKS + WINDOW, length - 1)
    hits, dealt = [], []
    for i in distant:
        far = list(range(SINKS, i - WINDOW + 1))
        if ids[i + 1] not in [ids[j] for j in far]:
            continue
        peak = max(range(i + 1), key=lambda j: weights[i, j])
        possible = [ids[k + 1] for k in distant if ids[k + 1] in [ids[j] for j in far]]
        hits.append(peak in far and ids[peak] == ids[i + 1])
        dealt.append(sum(peak in far and ids[peak] == token for token in possible) / len(possible))
    return (np.mean(hits), np.mean(dealt), np.mean(hits) - np.mean(dealt)) if hits else None


@torch.no_grad()
def test_retrieval_scores_equal_loops_whatever_the_padding():
    subject = gpt2()
    subject.model.double()
    options = {"sinks": SINKS, "windows": WINDOWS, "window": WINDOW, "losses": False}
    draw = random.Random(0)
    texts = [" ".join(draw.choice(["cat", "dog", "the", "sat"]) for _ in range(length)) for length in (30, 9, 18, 25)]
    scores = []
    for text in texts:
        ids = subject.encode([text]).inputs["input_ids"][0].tolist()
        trace = subject.trace(text)
        layers = [trace[f"decoder.{layer}.weights"] for layer in (1, 2)]
        scores.append([[copies(head.double().numpy(), ids) for head in layer] for layer in layers])
    wanted = np.array(scores)  # [text layer head score]
    assert (wanted[..., :2] > 0).any((0, 1, 2)).all()
    for side in ("right", "left"):
        subject.tokenizer.padding_side = side
        data = lo.look(subject, texts, [lo.lens.get("context", **options)], progress=False)["context"].data
        for number, name in enumerate(("retrieval", "retrieval_control", "retrieval_excess")):
            found = data[name].sel(stack="decoder").values
            np.testing.assert_allclose(found, wanted[..., number].mean(0), atol=1e-12)
            error = data[f"{name}_se"].sel(stack="decoder").values
            np.testing.assert_allclose(error, wanted[..., number].std(0, ddof=1) / 2, atol=1e-12)


def test_texts_that_repeat_nothing_have_no_retrieval_score():
    tokens = gpt2().encode(["cat " * 11]).source
    tokens = tokens.replaced(ids=torch.arange(1, 1 + tokens.ids.shape[1])[None])
    peaks = torch.zeros(1, 2, tokens.ids.shape[1], dtype=torch.long)
    scores, exists = retrieval_scores(peaks, tokens, Stream(SINKS, WINDOW))
    assert tokens.ids.shape[1] > SINKS + WINDOW + 2
    assert not exists.any()
    assert not scores.any()


def test_a_window_as_long_as_the_text_counts_no_text():
    result = lo.look(gpt2(), TEXTS, ["context:window=20,windows=20"], progress=False)
    data = result["context"].data
    assert not data["loss_change_count"].any()
    assert not data["far_mass_count"].any()
    assert "No text is long enough" in next(iter(findings(result))).text


def test_masses_alone_run_no_masked_pass():
    data = lo.look(gpt2(), TEXTS, ["context:sinks=1,windows=2,window=2,losses=false"], progress=False)["context"].data
    assert "loss_change" not in data
    assert int(data["far_mass_count"].max()) == len(TEXTS)


@pytest.mark.parametrize(
    ("kind", "options", "passes"), [("gpt2", "", 8), ("llama", "", 18), ("llama", ",losses=shared", 6)]
)
def test_the_cost_is_said_beforehand_and_is_right(kind, options, passes, capsys, monkeypatch):
    subject, counted = gpt2() if kind == "gpt2" else tiny_subject("llama"), []
    each = Rerun.each
    monkeypatch.setattr(Rerun, "each", lambda self, site, jobs: counted.append(len(jobs)) or each(self, site, jobs))
    lo.look(subject, TEXTS, [f"context:sinks=1,windows=2,window=2{options}"])
    assert sum(counted) == passes
    said = capsys.readouterr().err
    assert f"context: for each batch one more pass, and {passes} with masked heads, each from the layer" in said
    lo.look(subject, TEXTS, ["context:sinks=1,windows=2,window=2,losses=false"])
    assert "masked heads" not in capsys.readouterr().err


@pytest.mark.parametrize("make", [classifier, lambda: tiny_subject("marian"), lambda: tiny_subject("bert-mlm")])
def test_other_models_are_refused_in_one_line(make):
    with pytest.raises(UserError, match="is not a causal language model"):
        lo.look(make(), ["one two three"], ["context"], progress=False)


def test_a_sentence_counts_key_heads_once():
    """Two heads share a key head; of all key heads, one is made to need what is far away."""
    subject, options = tiny_subject("llama"), {"sinks": SINKS, "window": WINDOW, "windows": (WINDOW,)}
    result = lo.look(subject, TEXTS, [lo.lens.get("context", losses="shared", **options)], progress=False)
    key_heads = sum(each.groups for each in subject.anatomy.sites)
    assert key_heads < sum(each.heads for each in subject.anatomy.sites)
    told = [said.text for said in findings(result)]
    assert any(f"for none of {key_heads} key heads" in text for text in told)
    result["context"].data["shared_change"][0, 1, :2] = 9.0
    told = [said.text for said in findings(result)]
    assert any(f"for 1 of {key_heads} key heads" in text and "those of 2.1 (+9" in text for text in told)


def test_the_losses_of_some_layers_are_those_of_all(capsys):
    options = "context:sinks=1,windows=3,window=3"
    whole = lo.look(tiny_subject("llama"), TEXTS, [options], progress=False)["context"]
    some = lo.look(tiny_subject("llama"), TEXTS, [f"{options},layers=2"])["context"]
    passes = sum(each.heads + each.groups for each in tiny_subject("llama").anatomy.sites)
    assert f"{passes // len(tiny_subject('llama').anatomy.sites)} with masked heads" in capsys.readouterr().err
    for name in ("loss_change", "shared_change"):
        mine, expected = some.data[name].sel(layer=2), whole.data[name].sel(layer=2)
        assert mine.values == pytest.approx(expected.values, abs=1e-12)
        others = some.data[f"{name}_count"].values.sum() - some.data[f"{name}_count"].sel(layer=2).values.sum()
        assert others == 0
    assert some.data["far_mass"].values == pytest.approx(whole.data["far_mass"].values)
    heads = some.data["loss_change"].sizes["head"]
    assert f"of {heads} heads" in " ".join(finding.text for finding in findings({"context": some}))


def test_layers_that_are_not_there_are_refused_in_one_line():
    with pytest.raises(UserError, match="must be at most 2, the last layer of"):
        lo.look(gpt2(), TEXTS, ["context:layers=1+3"], progress=False)
    with pytest.raises(UserError, match="layers"):
        lo.lens.get("context", layers=(0,))
