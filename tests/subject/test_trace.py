"""Everything of one pass, by name."""

import numpy as np
import pytest
import torch
from tiny import bert, classifier, marian

from lorgnette.errors import UserError
from lorgnette.subject import trace as trace_module


def test_names_shapes_and_words():
    trace = bert().trace("The unbelievable cat.")
    assert trace["weights"].shape == (3, 4, 8, 8)
    assert trace["encoder.2.weights"].shape == (4, 8, 8)
    assert torch.equal(trace["encoder.2.weights"], trace["weights"][1])
    assert len(trace.names()) == 3 * 5
    assert trace.words() == ("[CLS]", "The", "unbelievable", "cat", ".", "[SEP]")
    words = trace.data(words=True)
    assert words.shape == (3, 4, 6, 6)
    np.testing.assert_allclose(words.sum("key").values, 1.0, atol=1e-6)
    assert list(words["key_text"].values) == list(trace.words())
    whole = trace.dataset()
    assert set(whole.data_vars) == {"query_vector", "key_vector", "value_vector", "weights", "context"}
    mixed = np.einsum("lhqk,lhkd->lhqd", whole.weights, whole.value_vector)
    np.testing.assert_allclose(mixed, whole.context, atol=1e-5)
    assert trace.hidden_states.shape == (4, 8, 32)
    assert trace.probabilities is None


def test_classifier_and_translation():
    assert sum(classifier().trace("good").probabilities.values()) == pytest.approx(1.0)
    trace = marian().trace("The cat ran.", target="le chat")
    assert trace.stacks == ("encoder", "decoder", "cross")
    assert trace["cross.3.weights"].shape == (4, 3, 5)
    with pytest.raises(UserError, match="several stacks: choose one of encoder, decoder, cross"):
        trace["weights"]
    generated = marian().trace("The cat ran.")
    assert generated.example.target is not None


@pytest.mark.parametrize("name", ["wieghts", "encoder.9.weights", "decoder.1.weights", "encoder.1.2.weights"])
def test_what_is_not_there(name):
    with pytest.raises(UserError, match="has no"):
        bert().trace("good")[name]


def _headed(cls: type, **config):
    from tiny import BERT, loud, word_pieces
    from transformers import BertConfig

    from lorgnette.subject import Subject

    return Subject(loud(cls, BertConfig(**BERT, **config)), word_pieces()).trace("the cat")


def test_probabilities_only_of_classes():
    """Tokens have classes of their own, a single output is a score, and labels that go together do not share out."""
    from transformers import BertForSequenceClassification, BertForTokenClassification

    assert _headed(BertForTokenClassification, num_labels=3).probabilities is None
    assert _headed(BertForSequenceClassification, num_labels=1).probabilities is None
    kind = "multi_label_classification"
    several = _headed(BertForSequenceClassification, num_labels=3, problem_type=kind)
    logits = several.output.logits[0].tolist()
    assert list(several.probabilities.values()) == pytest.approx([1 / (1 + np.exp(-x)) for x in logits])


def test_a_text_without_tokens_is_refused():
    from tiny import gpt2

    with pytest.raises(UserError, match="no tokens"):
        gpt2().trace("")


def test_weights_that_do_not_fit_are_refused_and_one_head_is_not(monkeypatch):
    monkeypatch.setattr(trace_module, "free_memory", lambda device: 4 * 12 * 8**2)
    whole = bert().trace("The unbelievable cat.")
    assert whole["weights"].shape == (3, 4, 8, 8)
    assert not any(call.has_weights for call in whole)  # they are made when they are asked for, and not kept
    long = bert().trace("The unbelievable cat, sat.")
    for make in (lambda: long["weights"], lambda: long.data(words=True), lambda: long.data()):
        with pytest.raises(UserError, match=r"1,200 weights .* trace\.head") as refused:
            make()
        assert "\n" not in str(refused.value)
    monkeypatch.undo()
    for words in (False, True):
        every = long.data(words=words)
        one = long.head(2, 3, words=words)
        np.testing.assert_allclose(one.values, every.sel(layer=2, head=3).values, atol=1e-12)
        assert one["key_text"].values.tolist() == every["key_text"].values.tolist()
    with pytest.raises(UserError, match=r"no head 4\.1"):
        long.head(4, 1)
