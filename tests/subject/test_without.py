"""A head knocked out for one text: what is told is what the plain model does without it."""

import json

import pytest
import torch
from tiny import bert, classifier, gpt2, marian
from tiny import subject as tiny
from typer.testing import CliRunner

from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.lens.ablation.means import HeadMeans
from lorgnette.looking.look import look
from lorgnette.subject.knockout import Knockout


def zeroed(subject, site, head):
    """Zero the part of the output projection that reads one head."""
    around = subject.anatomy[site]
    with torch.no_grad():
        around.output.weight.view(around.output.out_features, around.heads, -1)[:, head] = 0.0


def test_a_classifier_without_a_head():
    text = "The cat sat on the mat."
    plain = classifier()
    trace = plain.trace(text, without=[("encoder", 2, 3)])
    before = plain.trace(text)
    zeroed(plain, plain.sites[1], 2)
    after = plain.trace(text)
    change = trace.effect
    assert change.without == ("encoder.2.3",)
    assert torch.allclose(change.before, before.output.logits[0])
    assert torch.allclose(change.after, after.output.logits[0])
    assert torch.equal(change.after, trace.output.logits[0])
    assert not torch.allclose(change.before, change.after)
    p, q = (trace.output.logits[0].softmax(-1) for trace in (before, after))
    assert change.divergence == pytest.approx((p * (p / q).log()).sum().item(), rel=1e-6)
    cosine = torch.nn.functional.cosine_similarity(before.hidden_states[-1], after.hidden_states[-1], dim=-1)
    assert change.shift == pytest.approx(1 - cosine.mean().item(), rel=1e-6)
    assert trace["encoder.2.weights"].shape == before["encoder.2.weights"].shape
    assert before.effect is None
    assert set(change.said) <= set(plain.labels)


def test_the_weights_stay_and_the_layers_above_see_it():
    subject = bert()
    whole, without = (subject.trace("The cat sat.", without=heads) for heads in ((), ["2.1"]))
    assert torch.allclose(whole["encoder.2.weights"], without["encoder.2.weights"])
    assert not torch.allclose(whole["encoder.3.weights"], without["encoder.3.weights"])
    assert without["encoder.2.context"][0].abs().max() == 0
    assert without.effect.before is None
    assert without.effect.said is None
    assert without.effect.shift > 0


@pytest.mark.parametrize("family", [gpt2, marian, lambda: tiny("bert-mlm")])
def test_models_of_pieces(family):
    subject = family()
    mask = subject.tokenizer.mask_token
    text = "w8 [MASK] w9" if "mlm" in subject.name else "The cat sat"
    stack = subject.sites[0].name
    change = subject.trace(text, without=[(stack, 1, 1), (stack, 2, 4)]).effect
    assert change.divergence > 0
    assert change.before.shape == change.after.shape
    assert all(isinstance(said, str) for said in change.said)
    if "mlm" in subject.name:
        assert mask not in change.said[0]


def test_a_translation_without_heads_is_generated_without_them():
    subject = marian()
    every = [("cross", layer, head) for layer in (1, 2, 3) for head in (1, 2, 3, 4)]
    one, other = (subject.trace(text, without=every).effect.said for text in ("The cat sat", "A dog ran and slept"))
    assert one[0] != other[0]
    assert other[1].startswith(one[1])  # a decoder that reads nothing says the same of every text, to its limit


def test_mean_ablation():
    subject = bert()
    texts = ["The cat sat.", "A dog ran, and it was good!"]
    means = look(subject, texts, [HeadMeans()], progress=False)["head_means"]
    contexts = torch.cat([subject.trace(text)["encoder.2.context"][2] for text in texts])
    site = subject.sites[1]
    knockout = Knockout.of(subject, ["2.3"], means)
    assert torch.allclose(knockout.means[site][2], contexts.mean(0), atol=1e-9)
    with torch.no_grad(), subject.tapped(knockout):
        moved = subject.run(subject.encode(["good"])).last_hidden_state
    with torch.no_grad(), subject.tapped(Knockout.of(subject, ["2.3"])):
        assert not torch.allclose(moved, subject.run(subject.encode(["good"])).last_hidden_state)


def test_a_head_that_is_not_there_is_one_line():
    with pytest.raises(UserError, match=r"There is no head 9\.1: the encoder"):
        bert().trace("good", without=["9.1"])


def test_the_command_shows_the_change(tmp_path):
    folder = tmp_path / "classifier"
    subject = classifier(torch.float32)
    subject.model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    run = lambda *more: CliRunner().invoke(app, ["trace", str(folder), "The cat sat.", "--without", "2.3", *more])  # noqa: E731
    lines = run().output.splitlines()
    assert any(line.startswith("without encoder.2.3: KL") for line in lines)
    assert sum("logit" in line for line in lines) == 2
    document = json.loads(run("--json").stdout)
    change = subject.trace("The cat sat.", without=["2.3"]).effect
    assert document["effect"]["divergence"] == pytest.approx(change.divergence, rel=1e-3)
    assert set(document["effect"]["logits"]) == set(subject.labels)
