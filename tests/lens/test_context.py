"""The lens `context` against loops in float64, written from its definition."""

import math

import numpy as np
import pytest
import torch
from tiny import classifier, examples, gpt2
from tiny import subject as tiny_subject

import lorgnette as lo
from lorgnette.errors import UserError
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


@pytest.mark.parametrize("make", [classifier, lambda: tiny_subject("marian"), lambda: tiny_subject("bert-mlm")])
def test_other_models_are_refused_in_one_line(make):
    with pytest.raises(UserError, match="is not a causal language model"):
        lo.look(make(), ["one two three"], ["context"], progress=False)
