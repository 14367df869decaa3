"""What cannot be watched, or was not meant, is one line that says what to do."""

import inspect

import pytest
import torch
import transformers as hf
from tiny import BERT, subject, tiny_model

import lorgnette as lo
from lorgnette.errors import CaptureError, UserError, flag, whole_numbers
from lorgnette.looking.driver import refuse_odd_keep


def given(length=6, device="cpu"):
    return {
        "input_ids": torch.full((2, length), 7, device=device),
        "attention_mask": torch.ones(2, length, device=device),
    }


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return hf.BertForSequenceClassification(hf.BertConfig(**BERT, num_labels=3)).eval()


@pytest.mark.parametrize("way", ["wrapped", "in place", "a part"])
def test_a_compiled_model(way):
    model = tiny_model("bert")
    if way == "wrapped":
        model = torch.compile(model, backend="eager")
    elif way == "in place":
        model.compile(backend="eager")
    else:
        model.encoder.layer[0].compile(backend="eager")
    for call in (lambda: lo.attention(model, **given()), lambda: lo.Subject(model)):
        with pytest.raises(CaptureError, match="is compiled"):
            call()


def test_the_model_that_a_compiled_one_was_made_from_can_be_watched():
    compiled = torch.compile(tiny_model("bert"), backend="eager")
    assert len(lo.attention(compiled._orig_mod, parts=["weights"], **given())) == 3


def test_a_model_that_is_compiled_after_it_became_a_subject():
    whole = subject("bert")
    whole.model.compile(backend="eager")
    try:
        with pytest.raises(CaptureError, match="is compiled"):
            whole.trace("a b")
    finally:
        whole.model._compiled_call_impl = None


def test_gradient_checkpointing(classifier):
    classifier.gradient_checkpointing_enable()
    classifier.train()
    with pytest.raises(CaptureError, match="gradient_checkpointing_disable"):
        lo.attention(classifier, **given())
    with torch.no_grad():
        assert len(lo.attention(classifier, parts=["weights"], **given())) == 3
    classifier.eval()
    assert len(lo.attention(classifier, parts=["weights"], **given())) == 3


def test_a_batch_without_a_mask_that_has_padding():
    whole = subject("bert")
    made = whole.tokenizer(["a", "a b a b"], padding=True, return_tensors="pt")
    del made["attention_mask"]
    with pytest.raises(UserError, match=r"contain padding \(id \d+\)"):
        lo.batch(made, whole.tokenizer)
    with (
        pytest.raises(UserError, match="no attention_mask"),
        lo.watch(whole.model, lo.lens.get("weights"), batch=lo.batch(made)),
    ):
        whole.model(**made)


def test_tensors_on_another_device(classifier):
    far = given(device="meta")
    with pytest.raises(UserError, match=r"input_ids is on meta and the model on cpu.*\.to\('cpu'\)"):
        lo.attention(classifier, **far)
    for call in (lambda: lo.effect(classifier, far, without=["1.1"]), lambda: lo.gradient_effects(classifier, far)):
        with pytest.raises(UserError, match="is on meta"):
            call()
    with (
        pytest.raises(UserError, match="is on meta"),
        lo.watch(classifier, lo.lens.get("weights"), batch=lo.batch(given()).to("meta")),
    ):
        pass


@pytest.mark.parametrize("head", ["9.1", "1.9", (1, 9), "decoder.1.1", "3", "0.1"])
def test_a_head_that_does_not_exist(classifier, head):
    for slip in (
        lambda: lo.without(classifier, [head]),
        lambda: lo.scaled(classifier, {head: 0.5}),
        lambda: lo.patched(classifier, lo.attention(classifier, **given()), [head]),
    ):
        with pytest.raises(UserError, match=r"head|stack"), slip():
            pass


def test_rows_and_positions_that_the_text_does_not_have(classifier):
    with pytest.raises(UserError, match="no query row 99"):
        lo.attention(classifier, rows=[99], **given())
    with pytest.raises(UserError, match="no query row -99"):
        lo.attention(classifier, rows=[-99], **given())
    with pytest.raises(UserError, match=r"rows must be a list of whole numbers\. Got -1"):
        inspect.unwrap(lo.attention)(classifier, rows=-1, **given())  # without the check of types, as users call it
    other = lo.attention(classifier, **given())
    with pytest.raises(UserError, match="no position 99"), lo.patched(classifier, other, ["1.1"], positions=[99]):
        classifier(**given())


@pytest.mark.parametrize("name", ["frequency"])
def test_a_lens_that_needs_a_tokenizer(classifier, name):
    with (
        pytest.raises(UserError, match=r"has no tokenizer.*Subject\(model, tokenizer\)"),
        lo.watch(classifier, lo.lens.get(name), batch=lo.batch(given())),
    ):
        classifier(**given(), output_hidden_states=True)
    with pytest.raises(UserError, match="has no tokenizer"):
        lo.look(lo.Subject(classifier), ["a b"], name, progress=False)


@pytest.mark.parametrize("name", ["roles", "importance", "agreement"])
def test_a_lens_that_goes_through_the_corpus_twice(classifier, name):
    with (
        pytest.raises(UserError, match=r"use lo\.look for it"),
        lo.watch(classifier, lo.lens.get(name), batch=lo.batch(given())),
    ):
        classifier(**given())


@pytest.mark.parametrize("value", [torch.ones(1, 4), None, 1, "yes"])
def test_a_flag_is_true_or_false(value):
    with pytest.raises(UserError, match=r"^progress must be True or False"):
        flag(value, "progress")
    assert flag(True, "progress")
    assert not flag(False, "progress")


@pytest.mark.parametrize("value", [{}, set(), {1: 2}, {0}])
def test_rows_without_an_order_are_refused(value):
    with pytest.raises(UserError, match=r"^rows must be a list of whole numbers"):
        whole_numbers(value, "rows")


def test_a_tensor_in_the_place_of_a_word_is_one_line():
    with pytest.raises(UserError, match=r"^keep can be 'texts'") as caught:
        refuse_odd_keep(torch.zeros(2, 3))
    assert "\n" not in str(caught.value)


def test_no_layers_are_named_as_the_fault(classifier):
    with pytest.raises(UserError, match="layers are empty"):
        lo.attention(classifier, **given(), layers=[])


def test_a_message_has_one_line_whatever_it_quotes():
    assert str(UserError(f"There is no {torch.zeros(2, 2)}.")) == "There is no tensor([[0., 0.], [0., 0.]])."


def test_a_truth_value_is_no_class(classifier):
    model = lo.Subject(classifier, subject("bert").tokenizer)
    batch = lo.batch(given(), model.tokenizer)
    with pytest.raises(UserError, match="target must be a class"):
        lo.explain(model, batch, "gradient_x_input", torch.tensor(True))
