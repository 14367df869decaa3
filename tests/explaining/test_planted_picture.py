"""A planted picture: one patch decides the answer. Attention, relevance and deletion find it, and nothing else."""

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import tokenizer
from tiny.pictures import IMAGE, PATCH, SIDE, picture_model

import lorgnette as lo
from lorgnette.explaining.patches import patch_deletion, patch_falls

ANSWER, OTHER, FIRST = 50, 51, 1
"""The word that the marked patch says, the word that is said without it, and where the patches begin."""
MARK, ASK, SAY = 3, 7, 1
"""Components: of a key that says "marked" and the query for it (the slowest rotation), and of what is written."""


def planted(*, speaks: bool = True) -> hf.LlavaForConditionalGeneration:
    """The first head asks for the marked patch and, if it `speaks`, writes the answer; all else is silent.

    The tower of pictures hands each patch on as it is: a patch of red pixels becomes one direction, any other nothing.
    """
    base, _ = picture_model("llava")
    config = base.config
    config.vision_feature_layer = -1
    model = hf.LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1.0)
        parts = dict(model.named_parameters())
        vision = next(name for name in parts if "patch_embedding" in name)
        parts[vision][0, 0].fill_(1.0)  # the red of a patch, summed
        into, out = (next(name for name in parts if f"linear_{n}.weight" in name) for n in (1, 2))
        parts[into][0, 0], parts[out][MARK, 0] = 1.0, 1.0
        words = next(name for name in parts if "embed_tokens" in name)
        parts[words][:, 20] = 1.0  # words have a direction of their own
        query, key, value, output = (
            next(name for name in parts if f"layers.0.self_attn.{p}_proj.weight" in name and "language" in name)
            for p in "qkvo"
        )
        parts[query][ASK, 20], parts[key][ASK, MARK] = 3.0, 3.0
        if speaks:
            parts[value][SAY, MARK], parts[output][10, SAY] = 2.0, 2.0
        head = next(name for name in parts if "lm_head" in name)
        parts[head][ANSWER, 10], parts[head][OTHER, 20] = 8.0, 1.0
    return model


def seen(marked: list[int | None]) -> dict[str, torch.Tensor]:
    """One text for each picture, with the patch that is red; None: a blank picture."""
    count = (SIDE // PATCH) ** 2
    pixels = torch.zeros(len(marked), 3, SIDE, SIDE)
    for text, place in enumerate(marked):
        if place is not None:
            row, column = (PATCH * number for number in divmod(place, SIDE // PATCH))
            pixels[text, 0, row : row + PATCH, column : column + PATCH] = 1.0
    ids = torch.tensor([[2, *[IMAGE] * count, 7, 8, 9]] * len(marked))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}


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
