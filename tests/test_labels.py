"""Labels of a corpus and classes of a model are matched by name; strings are names, not lists of letters."""

import re
from dataclasses import replace

import pytest
import torch
from tiny import EXAMPLES, bert, classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.importance.lens import Importance
from lorgnette.reporting import Comparison, Report
from lorgnette.reporting.contents import whole_model
from lorgnette.results.result import WHOLE_MODEL
from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.labels import mapping_of, matched


def named(*labels):
    return Corpus.of(EXAMPLES, name="reviews", labels=labels)


def of(corpus):
    return [example.label for example in corpus]


def test_labels_are_matched_by_name():
    corpus = named("Negative", "positive")
    assert of(matched(corpus, ("positive", "negative"), model="m")) == [1 - e.label for e in EXAMPLES]
    assert matched(corpus, ("negative", "Positive", "neutral"), model="m") is corpus
    assert of(matched(named("0", "1"), ("bad", "good"), model="m")) == of(corpus)
    assert of(matched(named("2", "1"), ("1", "2"), model="m")) == [1 - e.label for e in EXAMPLES]  # names, not numbers


def test_what_cannot_be_matched_is_refused_with_both_lists():
    corpus = named("negative", "positive")
    with pytest.raises(UserError, match=r"\(negative, positive\).*\(LABEL_0, LABEL_1\).*--labels negative=LABEL_0"):
        matched(corpus, ("LABEL_0", "LABEL_1"), model="m")
    swapped = {"negative": "LABEL_1", "positive": "LABEL_0"}
    assert of(matched(corpus, ("LABEL_0", "LABEL_1"), swapped, model="m")) == [1 - e.label for e in EXAMPLES]
    with pytest.raises(UserError, match="not a class of 'm'"):
        matched(corpus, ("LABEL_0", "LABEL_1"), {"negative": "LABEL_2"}, model="m")
    assert mapping_of("a=b, c = d") == {"a": "b", "c": "d"}
    with pytest.raises(UserError, match="LABEL=CLASS"):
        mapping_of("a")


def swapped_model():
    """The same classifier with its classes in the other order."""
    watched = classifier()
    model = watched.model
    model.config.id2label, model.config.label2id = {0: "bad", 1: "good"}, {"bad": 0, "good": 1}
    import copy

    other = copy.deepcopy(model)
    with torch.no_grad():
        other.classifier.weight.copy_(model.classifier.weight[[1, 0]])
        other.classifier.bias.copy_(model.classifier.bias[[1, 0]])
    other.config.id2label, other.config.label2id = {0: "good", 1: "bad"}, {"good": 0, "bad": 1}
    return watched, Subject(other, watched.tokenizer, name="swapped")


def test_a_model_with_its_classes_in_another_order_gives_the_same_numbers():
    one, other = swapped_model()
    if len(one.labels) != 2:
        pytest.skip("the tiny classifier has other classes")
    corpus = named("bad", "good")
    found = [lo.look(s, corpus, [Importance(("zero",))], progress=False)["importance"].data for s in (one, other)]
    for name in ("loss", "accuracy"):
        assert found[0][name].item() == pytest.approx(found[1][name].item(), abs=1e-9)
    with pytest.raises(UserError, match="are not the classes"):
        lo.look(one, named("hate", "normal"), ["importance"], progress=False)


def test_strings_are_not_lists(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\na dog ran\n")
    results = lo.look(bert(), str(path), "weights, norms", progress=False)
    assert list(results) == ["weights", "norms"]
    assert results["weights"].provenance.texts == 2
    with pytest.raises(UserError, match="list of texts"):
        bert().encode("the cat sat")
    with pytest.raises(UserError, match="Subject"):
        lo.load(bert().model)


def test_texts_keep_what_they_have():
    example = replace(EXAMPLES[0], label=None)
    corpus = Corpus.of([example], name="reviews", labels=("b", "a"))
    assert next(iter(matched(corpus, ("a", "b"), model="m"))) == example


def test_accuracy_and_loss_of_the_whole_model_stand_beside_every_lens():
    subject, _ = swapped_model()
    corpus = named("bad", "good")
    wanted = ["importance", "gradients", "relevance", "cones", "weights"]
    results = lo.look(subject, corpus, wanted, progress=False)
    found = results["importance"].data
    whole = {"accuracy": found["accuracy"].item(), "loss": found["loss"].item(), "texts": len(EXAMPLES)}
    for lens in wanted:
        assert results[lens].data.attrs[WHOLE_MODEL] == pytest.approx(whole, abs=1e-6)
    alone = lo.look(subject, corpus, ["weights"], progress=False)
    assert alone["weights"].data.attrs[WHOLE_MODEL] == pytest.approx(whole, abs=1e-6)
    assert whole_model(alone).text.startswith("The whole model: accuracy 0.4")
    said = whole_model(results)
    assert said.numbers["low"] <= whole["accuracy"] <= said.numbers["high"]
    assert said.text in re.sub("</?b>", "", Report(results).html())


def test_relevance_needs_no_labels_so_that_others_only_leave_accuracy_out():
    subject, _ = swapped_model()
    results = lo.look(subject, named("hate", "normal"), ["relevance"], progress=False)
    assert whole_model(results) is None


def test_two_runs_stand_beside_the_accuracy_of_both_models():
    pair = swapped_model()
    runs = [lo.look(subject, named("bad", "good"), ["importance"], progress=False) for subject in pair]
    numbers = Comparison(*runs).whole_models().numbers
    assert numbers["accuracy_0"] == numbers["accuracy_1"] == runs[0]["importance"].data["accuracy"].item()
