"""What a language model says at a place of a text, and one candidate against another."""

import pytest
import torch
from tiny import subject

from lorgnette.errors import UserError
from lorgnette.explaining import Next, explain, explanations

TEXT = "w7 w8 . w9 w10 , w11"
AT = 5
EVERY = ("gpt2", "llama", "gemma")


def by_hand(model, batch, row: int, first: int, second: int):
    """∂(logit of a − logit of b)/∂x · x for every token, by plain autograd."""
    vectors = model.model.get_input_embeddings()(batch.source.ids).detach().requires_grad_()
    logits = model.model(inputs_embeds=vectors, attention_mask=batch.inputs["attention_mask"]).logits
    difference = logits[0, row, first] - logits[0, row, second]
    (gradient,) = torch.autograd.grad(difference, vectors)
    return difference.detach(), (gradient * vectors.detach()).sum(-1)[0]


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen3"])
def test_gradients_of_a_difference_of_candidates(family):
    model = subject(family)
    batch = model.encode([TEXT])
    number = {word: model.tokenizer.convert_tokens_to_ids(word) for word in ("w20", "w30")}
    for at in (AT, None):
        row = (len(batch.source.pieces[0]) if at is None else at) - 1
        expected, relevance = by_hand(model, batch, row, number["w20"], number["w30"])
        made = explain(model, batch, "gradient_x_input", Next("w20", instead_of="w30", at=at))
        torch.testing.assert_close(made.start[0], expected)
        torch.testing.assert_close(made.tokens[0], relevance, atol=1e-9, rtol=1e-7)
        assert made.explained == ("w20 − w30",)


@pytest.mark.parametrize("family", EVERY)
@pytest.mark.parametrize("method", explanations())
def test_every_method_that_applies(method, family):
    """The start is the difference of logits; what comes at the place or behind it has no part in it."""
    model = subject(family)
    batch = model.encode([TEXT])
    target = Next(instead_of=40, at=AT)
    with torch.no_grad():
        logits = model.model(**batch.inputs).logits[0, AT - 1]
    said = int(batch.source.ids[0, AT])
    if method == "globenc":  # terms behind both norms of a layer are for layers that end in a norm
        with pytest.raises(UserError):
            explain(model, batch, method, target)
        return
    made = explain(model, batch, method, target)
    torch.testing.assert_close(made.start[0], logits[said] - logits[40])
    assert not bool(made.tokens[0, AT:].abs().max() > 1e-12)
    assert bool(made.tokens[0, :AT].abs().max() > 0)
    if made.gap is not None:
        assert float(made.gap[0]) < 0.05


def test_a_generated_token_is_explained_by_what_came_before():
    model = subject("llama")
    trace = model.trace(TEXT, generate=4)
    place = trace.parts["generated"][1]
    made = explain(model, trace.batch, "attnlrp", Next(at=place))
    said = int(trace.batch.source.ids[0, place])
    torch.testing.assert_close(made.start[0], trace.output.logits[0, place - 1, said])
    assert made.explained == (model.tokenizer.decode([said]),)
    assert bool((made.tokens[0, place:] == 0).all())


def test_behind_the_text_it_is_the_likeliest():
    model = subject("gpt2")
    batch = model.encode([TEXT])
    for method in ("attnlrp", "integrated_gradients", "rollout"):
        one, other = explain(model, batch, method, Next()), explain(model, batch, method)
        torch.testing.assert_close(one.tokens, other.tokens)
        assert one.explained == other.explained


@pytest.mark.parametrize(
    ("family", "target", "words"),
    [
        ("bert-classifier", Next("w7"), "not a causal language model"),
        ("gpt2", Next(at=0), "nothing to explain at token 0"),
        ("gpt2", Next(at=99), "nothing to explain at token 99"),
        ("gpt2", Next("w7 w8"), "tokens of .*, not one"),
        ("gpt2", Next(500), "There is no token 500"),
    ],
)
def test_what_is_not_said(family, target, words):
    model = subject(family)
    with pytest.raises(UserError, match=words):
        explain(model, model.encode([TEXT]), "gradient_x_input", target)
