"""Whatever the library hands out shows itself in a notebook, without a network and without raw text as HTML."""

import pytest
import torch
from tiny import EXAMPLES, classifier

import lorgnette as lo
from lorgnette.bare.attention import attention
from lorgnette.explaining import explain
from lorgnette.reporting import figures_of
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def things():
    subject = classifier()
    subject.name = NASTY
    results = lo.look(subject, EXAMPLES, ["weights"], progress=False)
    batch = subject.encode([Example(NASTY, "the cat sat")])
    return {
        "Subject": subject,
        "Corpus": Corpus(NASTY, lambda: iter(EXAMPLES), labels=("no", NASTY)),
        "Batch": batch,
        "Trace": subject.trace("the cat sat"),
        "Trace without a head": subject.trace("the cat sat", without=["1.1"]),
        "Effect on a text": subject.trace("the cat sat", without=["1.1"]).effect,
        "Explanation": explain(subject, batch, "ah"),
        "Attention": attention(subject, **batch.inputs),
        "Effect": lo.effect(subject, batch.inputs, without=["1.1"]),
        "Result": results["weights"],
        "Results": results,
        "Figure": figures_of(results["weights"])[0],
        "Report": lo.Report(results),
    }


def test_everything_shows_itself_offline(things):
    for name, thing in things.items():
        html = thing._repr_html_()
        assert len(html) > 40, name
        assert NASTY not in html, name
        assert not [word for word in ("http://", "https://") if word in html.replace("http://www.w3.org/", "")], name
        assert "object at 0x" not in html + repr(thing), name


def test_facts_say_what_is_to_be_known(things):
    facts = things["Subject"].facts()
    assert facts["stacks"] == "encoder: 3 layers of 4 heads"
    assert things["Batch"].facts()["texts"] == 1
    assert set(things["Effect on a text"].facts()) >= {"without", "output"}
    assert "encoder.1.weights" in things["Attention"].facts()
    explanation, words = things["Explanation"], things["Batch"].source.words[0]
    (scores,) = explanation.words()
    assert torch.equal(scores, explanation.words(things["Batch"].source)[0])
    strongest = max(range(len(words)), key=lambda word: abs(scores[word]))
    assert f": {words[strongest]} " in explanation.facts()["text 1"]


def test_a_repr_is_one_short_line_without_tensors(things):
    for name, thing in things.items():
        assert "tensor(" not in repr(thing), name
        assert len(repr(thing)) < 500, name
        assert "\n" not in repr(thing), name
    tokens = len(things["Batch"].source.pieces[0])
    assert f"weights 1 × 4 × {tokens} × {tokens}" in repr(things["Attention"])
    assert "encoder, 3 layers from 1 to 3: query" in repr(things["Attention"])
    assert repr(things["Batch"]).startswith(f"Batch(1 text: input_ids 1 × {tokens}")
