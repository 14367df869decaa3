"""The cards say what the results say, and show the row in which the head can be seen."""

import json
import re

import numpy as np
import pytest
from made import IMAGE, SCRIPT, norms, weights
from tiny import EXAMPLES, TREEBANK, bert, classifier, gpt2, marian
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.figures.lens_report import CHAPTERS, OTHER
from lorgnette.lens.norms.report import norm_shares
from lorgnette.reporting.atlas import atlas, head_examples
from lorgnette.reporting.contents import in_chapters
from lorgnette.reporting.examples import examples_of, save_examples, saved_examples
from lorgnette.results import Results
from lorgnette.texts.example import Example

SUBJECT = classifier()


@pytest.fixture(scope="module")
def looked():
    lenses = ["weights", "norms", "relevance", "importance", "roles"]
    return lo.look(SUBJECT, TREEBANK, lenses, progress=False)


@pytest.fixture(scope="module")
def documents():
    return examples_of(SUBJECT, TREEBANK)


def test_every_head_has_a_card_with_the_numbers_of_the_results(looked, documents):
    cards = atlas(looked, documents)
    assert [card.name for card in cards] == [f"{layer}.{head}" for layer in (1, 2, 3) for head in (1, 2, 3, 4)]
    moved = looked["norms"].data["norm"].sel(category=["cls", "sep", "period_comma", "other"]).sum("category")
    for card in cards:
        at = {"stack": "encoder", "layer": card.layer, "head": card.head}
        facts = {fact.name: fact for fact in card.facts}
        layer = moved.sel(stack="encoder", layer=card.layer)
        assert facts["confidence"].value == looked["weights"].data["confidence"].sel(at).item()
        assert facts["norm"].value == pytest.approx(layer.sel(head=card.head).item() / layer.sum().item())
        assert facts["relevance"].value == looked["relevance"].data["relevance"].sel(at).item()
        assert facts["importance"].value == looked["importance"].data["loss_change"].sel(**at, ablation="mean").item()
        assert facts["confidence"].text == f"{facts['confidence'].value:.2f}"
        assert all(0 <= fact.length <= 20 for fact in card.facts)
        assert card.example is not None
    assert norm_shares(looked["norms"].data).sum("head").values == pytest.approx(np.ones((1, 3)))


def test_a_head_is_seen_where_it_reads_another_word_most(documents):
    subject, best = SUBJECT, {}
    for number, document in enumerate(documents):
        (example,) = [e for e in TREEBANK if e.text == document["text"]]
        words = subject.trace(example).data(words=True)
        side = document["sides"][0]
        lettered = [k for k, word in enumerate(side["words"]) if side["index"][k] >= 0 and word.isalnum()]
        for layer in range(3):
            for head in range(4):
                matrix = words.values[layer, head]
                for i in lettered:
                    for j in lettered:
                        value = float(matrix[i, j])
                        if i != j and value > best.get((layer, head), (0.0,))[0]:
                            best[layer, head] = (value, number, side["words"][i], side["words"][j])
    seen = head_examples(documents)
    assert len(seen) == 12
    for (layer, head), (value, *_) in best.items():
        found = seen["encoder", layer + 1, head + 1]
        assert found.weight == pytest.approx(value, abs=0.02)  # a byte holds the root of a weight
        assert max(level for _, level in found.words) <= 9


def test_translations_are_seen_too():
    documents = examples_of(marian(), EXAMPLES)
    cards = atlas(lo.look(marian(), EXAMPLES, ["weights"], progress=False), documents)
    assert {card.stack for card in cards} == {"encoder", "decoder", "cross"}
    assert all(card.example is None or (card.example.at is None) == (card.stack == "cross") for card in cards)
    assert any(card.example for card in cards if card.stack == "cross")


def test_decoders_and_models_that_cannot_be_explained(monkeypatch):
    documents = examples_of(gpt2(), EXAMPLES)
    assert documents
    assert documents[0]["explanations"]

    def refuse(*_, **__):
        raise UserError("This model cannot be explained.")

    monkeypatch.setattr("lorgnette.reporting.views.gather.explain", refuse)
    documents = examples_of(SUBJECT, EXAMPLES)
    assert documents
    assert documents[0]["explanations"] == []


def test_cards_without_roles_or_examples():
    cards = atlas(Results([weights(), norms()]))
    assert {card.role for card in cards} == {""}, "nobody looked for roles"
    assert len(cards) == 12
    assert {fact.name for card in cards for fact in card.facts} == {"confidence", "entropy", "norm"}
    assert atlas(Results()) == []


def test_every_lens_of_ours_has_a_chapter():
    assert all(lo.lens.report_of(lens).chapter in set(CHAPTERS) - {OTHER} for lens in lo.lens.OURS)
    results = {"b": norms(), "a": weights()}
    assert [list(there) for there in in_chapters(results).values()] == [["a", "b"]]


def test_examples_are_short_the_same_and_kept(tmp_path, documents):
    assert [document["text"] for document in examples_of(SUBJECT, TREEBANK)] == [d["text"] for d in documents]
    assert 0 < len(documents) <= 4
    save_examples(documents, tmp_path, "abc")
    assert saved_examples(tmp_path, "abc") == json.loads(json.dumps(documents))
    assert saved_examples(tmp_path / "elsewhere", "abc") == []
    with pytest.raises(UserError, match="other weights"):
        saved_examples(tmp_path, "def")
    (tmp_path / "examples.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        saved_examples(tmp_path, "abc")
    assert examples_of(bert(), [Example("1", "cat")]) == []


def test_text_in_cards_and_packed_texts_stays_text():
    subject = SUBJECT
    nasty = [Example("1", f"the {SCRIPT} cat {IMAGE} sat on the mat", label=0)]
    html = lo.Report(lo.look(subject, nasty, ["weights"], progress=False), examples=examples_of(subject, nasty)).html()
    outside = re.sub(r"<script type=\"module\">.*?</script>", "", html, flags=re.DOTALL)
    assert len(re.findall("<script", outside)) == 1  # what was packed
    assert "<img" not in outside
    packed = json.loads(re.search(r'id="s1-packed">(.*?)</script>', outside, flags=re.DOTALL)[1])
    assert packed[0]["text"] == nasty[0].text


def test_look_keeps_examples_and_the_report_shows_them(tmp_path, monkeypatch):
    subject = SUBJECT
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    path, run = tmp_path / "texts.txt", tmp_path / "run"
    path.write_text("The cat sat on the mat.\nA dog ran, and it was good!\n")
    done = CliRunner().invoke(app, ["look", "tiny", "-c", str(path), "--out", str(run)])
    assert done.exit_code == 0, done.output
    assert len(json.loads((run / "examples.json").read_text())["examples"]) == 2
    first = (run / "report.html").read_text(encoding="utf-8")
    assert "Heads at work" in first
    assert CliRunner().invoke(app, ["report", str(run)]).exit_code == 0
    assert (run / "report.html").read_text(encoding="utf-8") == first
