"""What is computed can be pickled and copied; what cannot says so in one line."""

import copy
import pickle

import pytest
import torch
from tiny import BERT, TEXTS, classifier, loud, word_pieces
from transformers import BertConfig, BertForSequenceClassification

import lorgnette as lo
from lorgnette.errors import UserError

SOME = list(TEXTS[:2])


def subject():
    return lo.Subject(loud(BertForSequenceClassification, BertConfig(**BERT)), word_pieces(), name="tiny")


WAYS = {"pickled": lambda made: pickle.loads(pickle.dumps(made)), "copied": copy.deepcopy}


@pytest.fixture(params=WAYS)
def again(request):
    return WAYS[request.param]


def test_a_corpus(again):
    for corpus in (lo.corpus(SOME), lo.corpus("planted", split="test", limit=3)):
        made = again(corpus)
        assert list(made) == list(corpus)
        assert (made.name, made.labels, made.fingerprint()) == (corpus.name, corpus.labels, corpus.fingerprint())


def test_an_explanation_and_a_batch(again):
    whole = classifier()
    explained = lo.explain(whole, SOME, "gradient_x_input")
    made = again(explained)
    assert torch.equal(made.tokens, explained.tokens)
    assert all(map(torch.equal, made.words(), explained.words()))
    assert again(whole.encode(SOME)).source.words == whole.encode(SOME).source.words


def test_attention_with_gradients(again):
    model = subject().model
    seen = lo.attention(model, input_ids=torch.full((1, 4), 7))
    assert seen["weights"].requires_grad
    made = again(seen)
    assert torch.equal(made["weights"], seen["weights"])
    assert torch.equal(made.output.logits, seen.output.logits)
    assert not made["weights"].requires_grad


def test_a_subject_and_a_trace():
    whole = subject()
    assert again_weights(pickle.loads(pickle.dumps(whole))) == again_weights(whole)
    trace = whole.trace("the cat sat")  # for which transformers puts hooks into the model
    assert torch.equal(copy.deepcopy(trace)["weights"], trace["weights"])
    assert again_weights(copy.deepcopy(whole)) == again_weights(whole)
    hooks = sum(len(module._forward_hooks) for module in whole.model.modules())
    assert hooks
    made = pickle.loads(pickle.dumps(trace))
    assert torch.equal(made["weights"], trace["weights"])
    assert torch.equal(made.hidden_states[-1], trace.hidden_states[-1])
    other = pickle.loads(pickle.dumps(whole))
    assert again_weights(other) == again_weights(whole)
    assert torch.equal(other.trace("the cat sat").hidden_states[-1], trace.hidden_states[-1])  # it can be hooked again
    assert sum(len(module._forward_hooks) for module in whole.model.modules()) == hooks
    assert other.model is not whole.model


def test_a_hook_of_ones_own_is_named():
    whole = subject()
    handle = whole.model.register_forward_hook(lambda module, arguments, output: None)
    with pytest.raises(UserError, match=r"cannot be pickled: the model has the hook .*<lambda>, a function within"):
        pickle.dumps(whole)
    handle.remove()
    pickle.dumps(whole)


def again_weights(made):
    return lo.look(made, SOME, "weights", progress=False)["weights"].data["entropy"].values.tolist()
