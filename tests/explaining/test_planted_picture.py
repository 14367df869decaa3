"""A planted picture: one patch decides the answer. Attention, relevance and deletion find it, and nothing else."""

import numpy as np
import pytest
import torch
from tiny import tokenizer
from tiny.planted_picture import ANSWER, FIRST, OTHER, planted, seen

import lorgnette as lo
from lorgnette import patch_deletion, patch_falls

PLACES = [5, 0, 15, 10]


@pytest.fixture(scope="module")
def found():
    inputs = seen(PLACES)
    subject = lo.Subject(planted(), tokenizer("gpt2"), inputs=inputs)
    return subject, inputs, lo.batch(inputs, config=subject.model.config)


def strongest(scores: torch.Tensor) -> list[int]:
    return (scores.argmax(-1) - FIRST).tolist()


def test_the_answer_is_that_of_the_marked_patch(found):
    subject, inputs, _ = found
    with torch.no_grad():
        assert subject.model(**inputs).logits[:, -1].argmax(-1).tolist() == [ANSWER] * 4
        assert subject.model(**seen([None])).logits[:, -1].argmax(-1).tolist() == [OTHER]


def test_attention_and_norms_find_the_patch(found):
    subject, inputs, _ = found
    with torch.no_grad():
        attention = lo.attention(subject, **inputs)
    for measure in ("weights", "norms"):
        from_last = attention[f"decoder.1.{measure}"][:, 0, -1]
        assert strongest(from_last) == PLACES
    assert bool((attention["decoder.1.weights"][:, 0, -1].amax(-1) > 0.9).all())
    assert bool((attention["decoder.1.weights"][:, 1, -1].amax(-1) < 0.06).all())  # another head: even


@pytest.mark.parametrize("method", ["attnlrp", "gradient_x_input", "ah", "chefer2021", "rollout"])
def test_relevance_finds_the_patch(found, method):
    subject, _, batch = found
    tokens = lo.explain(subject, batch, method, lo.Next()).tokens
    image = batch.source.categories["image"]
    assert strongest(tokens.masked_fill(~image, -torch.inf)) == PLACES


@pytest.mark.parametrize("method", ["occlusion", "integrated_gradients", "shap"])
def test_methods_that_change_words_are_refused(found, method):
    subject, _, batch = found
    with pytest.raises(lo.UserError, match="a picture has none"):
        lo.explain(subject, batch, method, lo.Next())


def test_relevance_lies_on_the_picture_where_it_is(found):
    subject, _, batch = found
    tokens = lo.explain(subject, batch, "attnlrp", lo.Next()).tokens
    for text, place in enumerate(PLACES):
        (table,) = batch.source.patches.pictures(tokens[text], text)
        assert np.unravel_index(np.nanargmax(table), table.shape) == divmod(place, 4)


def test_deletion_finds_the_patch(found):
    subject, _, batch = found
    falls = patch_falls(subject, batch)
    assert strongest(falls) == PLACES
    others = falls.clone()
    others[torch.arange(4), torch.tensor(PLACES) + FIRST] = 0
    assert bool((falls.amax(-1) > 1).all())
    assert float(others.abs().max()) < 0.05


def test_the_deletion_test_tells_scores_from_chance(found):
    subject, _, batch = found
    tokens = lo.explain(subject, batch, "attnlrp", lo.Next()).tokens
    fall = patch_deletion(subject, batch, tokens)["fall"]
    at_once = fall.sel(share=0.1)
    assert bool((at_once.sel(order="scores") > 1).all())
    assert bool((at_once.sel(order="scores") > at_once.sel(order="random") + 0.5).all())
    with pytest.raises(lo.UserError, match="one for each token"):
        patch_deletion(subject, batch, tokens[:, 1:])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"draws": 0}, "draws must be a whole number from 1 to 100,000"),
        ({"shares": (0.1, 1.5)}, "shares must be a list of numbers above 0 and at most 1"),
        ({"shares": ()}, "not an empty one"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_what_would_be_no_test_is_refused(found, told, said):
    """Without draws chance would fall by 0, which any explanation beats."""
    subject, _, batch = found
    with pytest.raises(lo.UserError, match=said):
        patch_deletion(subject, batch, torch.rand(batch.source.mask.shape), **told)
    with pytest.raises(lo.UserError, match=said):
        lo.patch_test(subject, ["a", "b"], **told)


def test_scores_that_are_no_numbers_are_refused(found):
    subject, _, batch = found
    with pytest.raises(lo.UserError, match="scores must be numbers"):
        patch_deletion(subject, batch, torch.full(batch.source.mask.shape, torch.nan))


def test_the_control_finds_nothing():
    """The head looks at the patch as before and writes nothing: attention alone is taken in, norms and the rest not."""
    inputs = seen(PLACES)
    subject = lo.Subject(planted(speaks=False), tokenizer("gpt2"), inputs=inputs)
    batch = lo.batch(inputs, config=subject.model.config)
    with torch.no_grad():
        attention = lo.attention(subject, **inputs)
    assert strongest(attention["decoder.1.weights"][:, 0, -1]) == PLACES
    assert float(attention["decoder.1.norms"].abs().max()) == 0.0
    image = batch.source.categories["image"]
    tokens = lo.explain(subject, batch, "attnlrp", lo.Next()).tokens
    assert float((tokens * image).abs().max()) == 0.0
    assert float(patch_falls(subject, batch).abs().max()) < 1e-9
    assert float(abs(patch_deletion(subject, batch, tokens)["fall"]).max()) < 1e-9


def test_a_blank_picture_has_no_patch_that_matters():
    inputs = seen([None])
    subject = lo.Subject(planted(), tokenizer("gpt2"), inputs=inputs)
    batch = lo.batch(inputs, config=subject.model.config)
    with torch.no_grad():
        weights = lo.attention(subject, **inputs)["decoder.1.weights"][0, 0, -1, 1:17]
    assert float(weights.max() - weights.min()) < 1e-6
    assert float(patch_falls(subject, batch).abs().max()) < 0.05
