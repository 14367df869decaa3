"""Whatever `lo.corpus` takes, `look` and everything else that reads texts takes; labels are checked at the door.

Run by `test_wrong_types.py` in a process that does not check annotations: wrong types are what a user passes.
"""

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from tiny import TEXTS, classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.looking.texts import TokenizedTexts
from lorgnette.texts import texts_of
from lorgnette.training.settings import Splits, TrainingSettings

SOME = list(TEXTS[:4])
LABELS = [0, 1, 0, 1]
ROWS = [{"text": text, "label": label} for text, label in zip(SOME, LABELS, strict=True)]
FORMS = {
    "tuple": lambda: tuple(SOME),
    "examples": lambda: [lo.Example(str(number), text) for number, text in enumerate(SOME)],
    "rows": lambda: ROWS,
    "columns": lambda: {"text": SOME, "label": LABELS},
    "frame": lambda: pd.DataFrame(ROWS),
    "series": lambda: pd.Series(SOME),
    "array": lambda: np.array(SOME),
    "dataset": lambda: datasets.Dataset.from_list(ROWS),
    "streamed": lambda: datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    "splits": lambda: datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}),
    "corpus": lambda: lo.corpus(SOME),
    "iterator": lambda: iter(SOME),
}


@pytest.fixture(scope="module")
def subject():
    return classifier()


@pytest.fixture(scope="module")
def expected(subject):
    return lo.look(subject, SOME, "weights", progress=False)["weights"]


@pytest.mark.parametrize("form", FORMS)
def test_the_same_texts_in_any_form(subject, expected, form):
    found = lo.look(subject, FORMS[form](), "weights", progress=False)["weights"]
    assert found.provenance.texts == 4
    np.testing.assert_array_equal(found.data["entropy"], expected.data["entropy"])
    assert [encoded.example.text for encoded in TokenizedTexts(subject, FORMS[form]())] == SOME
    if form != "iterator":
        assert [example.text for example in lo.corpus(FORMS[form]())] == SOME
        assert len(lo.explain(subject, FORMS[form](), "gradient_x_input").tokens) == 4


def test_a_callback_and_a_training_take_them_too():
    assert len(list(lo.LensCallback(["weights"], pd.DataFrame(ROWS)).corpus)) == 4
    for corpus in (pd.DataFrame(ROWS), ROWS, FORMS["dataset"](), FORMS["splits"]()):
        settings = TrainingSettings("tp9-cls", corpus, "out", label_column="label")
        assert isinstance(settings.corpus, Splits)
        assert [example.label for example in settings.corpus.train] == LABELS
        assert settings.corpus.train.labels == ("0", "1")
        assert settings.record()["corpus"] == settings.corpus.train.name


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "corpus must be"),
        (3, "corpus must be"),
        (b"text", "corpus must be"),
        (lo.Example("1", "a"), r"pass \[text\]"),
        ([1, 2], "Text 1 of the corpus must be a string"),
        (["a", None], "Text 2 of the corpus must be a string"),
        ([float("nan")], "Text 1"),
        (iter([{"text": "a"}]), "Text 1"),
        ({"text": "the cat"}, "not lists of one length"),
        ({"text": ["a"], "label": [1, 2]}, "not lists of one length"),
        ({"sentence": ["a"]}, "no split 'train'"),
        (pd.DataFrame({"sentence": ["a"]}), "no column 'text'; the columns are 'sentence'"),
        ([], "has no texts"),
        (pd.DataFrame({"text": []}), "has no texts"),
    ],
)  # fmt: skip
def test_what_is_no_corpus_is_one_line(subject, wrong, said):
    with pytest.raises(UserError, match=said):
        lo.look(subject, wrong, "weights", progress=False)


def test_a_list_of_texts_stays_what_it_is():
    assert texts_of(SOME) is SOME


@pytest.mark.parametrize("label", ["1", 1.0, "x", -1, -100, [1], float("nan")])
def test_a_label_that_is_no_class(label):
    with pytest.raises(UserError, match=r"The label of 'a' \(None: no label\) must be a whole number, at least 0"):
        lo.Example("a", "text", label=label)


def test_labels_of_other_libraries():
    for label in (np.int64(1), np.array(1), True):
        assert type(lo.Example("a", "text", label=label).label) is int


@pytest.mark.parametrize("lens", ["importance", "gating:steps=1,seeds=0", "gradients", "cones", "removal", "agreement",
                                  "rationales"])  # fmt: skip
def test_a_label_beyond_the_classes(subject, lens):
    texts = [lo.Example(str(number), text, label=2) for number, text in enumerate(SOME)]
    with pytest.raises(UserError, match=r"The text '\d' has label 2, but 'tiny classifier' has 2 classes \(0 to 1\)"):
        lo.look(subject, texts, lens, progress=False)


@pytest.mark.parametrize("lens", ["weights", "relevance", "effects:total=false"])
def test_labels_that_nobody_reads_are_not_checked(subject, lens):
    """There is no accuracy on labels of other classes, not even on those that happen to fit."""
    texts = [lo.Example("1", "the cat", label=7), lo.Example("2", "the dog", label=1)]
    (found,) = lo.look(subject, texts, lens, progress=False).values()
    assert found.provenance.texts == 2
    assert not any("accuracy" in str(value) for value in found.data.attrs.values())


def test_annotations_that_do_not_fit_the_words():
    with pytest.raises(UserError, match="1 values of 'heads' for no words"):
        lo.Example("a", "text", heads=(1,))
    assert lo.Example("a", "text", words=["text"], heads=[0]).words == ("text",)


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("heads", ("a", "b"), "The heads of 'x' must be whole numbers"),
        ("heads", (0, 1.5), "The heads of 'x' must be whole numbers"),
        ("rationale", ("0", "1"), "The rationale of 'x' must be numbers"),
        ("relations", (1, 2), "The relations of 'x' must be strings"),
        ("tags", {"upos": 1}, "The tags 'upos' of 'x' must be a list of strings"),
        ("tags", {"upos": "AB"}, "The tags 'upos' of 'x' must be a list of strings"),
        ("tags", {"upos": (1, 2)}, "The tags 'upos' of 'x' must be a list of strings"),
    ],
)
def test_annotations_of_another_type(field, values, message):
    with pytest.raises(UserError, match=message):
        lo.Example("x", "a b", words=("a", "b"), **{field: values})


def test_annotations_of_numpy():
    example = lo.Example("x", "a b", words=("a", "b"), heads=tuple(np.array([0, 1])), rationale=tuple(np.ones(2)))
    assert example.heads == (0, 1)


def test_a_method_that_is_a_tensor_is_one_line(subject):
    with pytest.raises(UserError, match="There is no explanation method tensor") as caught:
        lo.explain(subject, SOME, torch.zeros(2, 3))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("metric", [object, lambda: 0, 1])
def test_a_metric_is_a_function_of_the_output(subject, metric):
    inputs = dict(subject.tokenizer(SOME, padding=True, return_tensors="pt"))
    with pytest.raises(UserError, match="metric must be a function of the model's output"):
        lo.gradient_effects(subject.model, inputs, metric=metric)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda subject: lo.look(subject.model, SOME), r"a model without its tokenizer; pass lo.Subject\(model, tok"),
        (lambda subject: lo.look("minilm", SOME), r"open it with lo.load\('minilm'\)"),
        (lambda subject: lo.explain(subject.model, SOME), "explain takes a Subject"),
        (lambda subject: subject.trace(None), "trace takes one text"),
        (lambda subject: lo.lens.get(None), "A lens is named by a string"),
        (lambda subject: lo.look(subject, SOME, [None]), "lenses must be names"),
        (lambda subject: lo.look(subject, SOME, batch_tokens="9"), "batch_tokens must be a whole number"),
        (lambda subject: subject.encode([]), "no text to encode"),
        (lambda subject: lo.Subject("minilm"), "made from a model"),
        (lambda subject: lo.Subject(subject.model, "minilm"), "takes a tokenizer"),
        (lambda subject: lo.batch("the cat"), "inputs must be a mapping"),
        (lambda subject: lo.attention(subject.model, input_ids=[[2, 99, 3]]), "has the id 99.*97 ids"),
        (lambda subject: lo.attention(subject.model, input_ids=[[2] * 65]), "65 tokens and the model takes 64"),
        (lambda subject: lo.attention(subject.model, input_ids=np.zeros((0, 3), int)), "input_ids are empty"),
        (lambda subject: lo.attention(subject.model, input_ids=[2, 5, 3]), r"must be \[batch token\]"),
        (lambda subject: lo.attention(subject.model, input_ids=[[2, 5], [3]]), "not a table of numbers"),
        (lambda subject: lo.batch({"input_ids": [[2, 96, 3]]}, subject.tokenizer), "the tokenizer has 35 pieces"),
        (lambda subject: lo.batch({"inputs_embeds": np.zeros((1, 3, 32))}, subject.tokenizer), "have no input_ids"),
        (lambda subject: lo.batch({"input_ids": [[2, 3]]}, labels=["1"]), "The label of 'text 1'"),
    ],
)  # fmt: skip
def test_slips_are_one_line(subject, call, said):
    with pytest.raises(UserError, match=said):
        call(subject)


def test_lists_and_arrays_are_tensors(subject):
    ids = subject.encode(SOME[:1]).inputs["input_ids"]
    weights = lo.attention(subject.model, input_ids=ids)["weights"]
    for form in (ids.tolist(), ids.numpy()):
        assert (lo.attention(subject.model, input_ids=form)["weights"] == weights).all()
        assert lo.batch({"input_ids": form}).lengths.tolist() == [ids.shape[1]]
