"""Occlusion and Chefer et al. (2021) against loops in float64 written from the papers; methods of other packages."""

import pytest
import torch
from headed import examples, headed

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining import Explanation, explain, explanations


def test_occlusion_is_the_model_run_without_each_token():
    watched = headed("bert-classifier")
    batch = watched.encode(examples((7, 3)))
    found = explain(watched, batch, "occlusion", target=1)
    for text, length in enumerate(batch.lengths.tolist()):
        ids = batch.source.ids[text, None, :length]
        with torch.no_grad():
            whole = watched.model(input_ids=ids).logits[0, 1]
            for place in range(length):
                changed = ids.clone()
                changed[0, place] = watched.tokenizer.mask_token_id
                fall = whole - watched.model(input_ids=changed).logits[0, 1]
                expected = 0.0 if batch.source.special[text, place] else fall.item()
                assert found.tokens[text, place].item() == pytest.approx(expected, abs=1e-10)
    assert not found.tokens[~batch.source.mask].any()


def eager(watched, **inputs):
    """The model's own eager attention weights, inside its graph."""
    watched.model.set_attn_implementation("eager")
    return watched.model(**inputs, output_attentions=True)


def bar(weights, start):
    """Ā: the mean over heads of the positive part of gradient times weight, head by head."""
    (rate,) = torch.autograd.grad(start, weights, retain_graph=True)
    return sum(torch.clamp(rate[0, h] * weights[0, h], min=0) for h in range(weights.shape[1])) / weights.shape[1]


def test_self_attention_by_the_paper():
    watched = headed("bert-classifier")
    batch = watched.encode(examples((7,)))
    found = explain(watched, batch, "chefer2021", target=2).tokens[0]
    out = eager(watched, **batch.inputs)
    relevance = torch.eye(len(found), dtype=torch.float64)
    for weights in out.attentions:
        relevance = relevance + bar(weights, out.logits[0, 2]) @ relevance
    torch.testing.assert_close(found, relevance[0].detach(), rtol=1e-9, atol=1e-12)


def test_an_encoder_and_a_decoder_by_the_paper():
    watched = headed("marian")
    batch = watched.encode(examples((7,)))
    found = explain(watched, batch, "chefer2021")
    out = eager(watched, **batch.inputs)
    start = out.logits[0].amax(-1)[batch.target.mask[0]].sum()
    source, target = (torch.eye(side.ids.shape[1], dtype=torch.float64) for side in (batch.source, batch.target))
    across = torch.zeros(len(target), len(source), dtype=torch.float64)
    for weights in out.encoder_attentions:
        source = source + bar(weights, start) @ source
    for own, cross in zip(out.decoder_attentions, out.cross_attentions, strict=True):
        mixing = bar(own, start)
        target, across = target + mixing @ target, across + mixing @ across
        across = across + normed(target).T @ bar(cross, start) @ normed(source)
    rows = batch.target.mask[0]
    torch.testing.assert_close(found.tokens[0], across[rows].mean(0).detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.target_tokens[0], target[rows].mean(0).detach(), rtol=1e-9, atol=1e-12)


def normed(relevance):
    out = torch.eye(len(relevance), dtype=torch.float64)
    for i, row in enumerate(relevance - torch.eye(len(relevance), dtype=torch.float64)):
        if row.sum() > 0:
            out[i] = out[i] + row / row.sum()
    return out


PLUGIN = '''
import torch
from lorgnette.explaining import Explanation

def lengths(subject, batch, target):
    """the length of each token"""
    return Explanation("lengths", torch.zeros(len(batch)), batch.source.mask.float())

def wrong(subject, batch, target):
    """no explanation at all"""
    return 3
'''


def test_another_package_registers_a_method(tmp_path, monkeypatch):
    tmp_path.joinpath("spelling.py").write_text(PLUGIN)
    meta = tmp_path / "spelling-1.0.dist-info"
    meta.mkdir()
    meta.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: spelling\nVersion: 1.0\n")
    entries = "[lorgnette.explanations]\nlengths = spelling:lengths\nwrong = spelling:wrong\nah = spelling:wrong\n"
    meta.joinpath("entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(tmp_path)
    watched = headed("bert-classifier")
    assert explanations()["lengths"] == "the length of each token"
    assert isinstance(lo.explain(watched, examples((3,)), "ah"), Explanation)  # ours keeps its name
    assert lo.explain(watched, examples((3,)), "lengths").words()[0].sum() == 3
    with pytest.raises(UserError, match=r"'wrong' .*must return an `Explanation`. Got int"):
        lo.explain(watched, examples((3,)), "wrong")
