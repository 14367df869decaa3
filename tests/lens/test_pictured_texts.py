"""Lenses on texts with pictures: a patch is given, never predicted, and towers of pictures are nobody's text."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from tiny.pictures import picture_model
from tiny.processors import processor_of

import lorgnette as lo
from lorgnette.lens.losses import IGNORED, right_tokens

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")

TEXTS = ("what is it", "a red cat", "a cat is red", "it is")


def speaking(kind: str = "llava", seed: int = 0):
    """A tiny LLaVA with its output head, in float64 so that twins agree to many digits."""
    base, _ = picture_model(kind, seed)
    torch.manual_seed(seed)
    return hf.LlavaForConditionalGeneration(base.config).eval().double()


@pytest.fixture(scope="module")
def subject():
    return lo.Subject(speaking(), processor_of("llava"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    rows = []
    for number, text in enumerate(TEXTS):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append({"text": text, "image": f"{number}.png"})
    file = folder / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(file)


def losses(model, processor, corpus, *hooks):
    """The mean cross-entropy of the words behind a picture, text by text, from the plain model."""
    out = []
    for number, text in enumerate(TEXTS):
        picture = Image.open(corpus.replace("texts.jsonl", f"{number}.png"))
        given = processor(text=[f"<image>\n{text}"], images=[picture], return_tensors="pt")
        given["pixel_values"] = given["pixel_values"].double()
        with torch.no_grad():
            logits = model(**given).logits[0]
        ids = given["input_ids"][0]
        predicted = [at for at in range(len(ids) - 1) if int(ids[at + 1]) != 90]
        assert len(predicted) == len(text.split())
        out.append(torch.nn.functional.cross_entropy(logits[predicted], ids[[at + 1 for at in predicted]]).item())
    return np.array(out)


def test_no_patch_is_to_be_predicted(subject):
    batch = subject.encode([subject.example("a red cat", image=Image.new("RGB", (20, 30)))])
    right = right_tokens(subject, "causal", batch)[0]
    ids = batch.inputs["input_ids"][0]
    assert right[right != IGNORED].tolist() == ids[-3:].tolist()
    assert (right != IGNORED).nonzero()[:, 0].tolist() == [16, 17, 18]


def test_the_loss_without_a_head_is_that_of_the_plain_model(subject, corpus):
    """Every head's output is zeroed by a hook on the plain model, which has no other part of this library in it."""
    data = lo.look(subject, corpus, lo.lens.get("importance", ablations=("zero",)), progress=False)["importance"].data
    model, processor = speaking(), processor_of("llava")
    whole = losses(model, processor, corpus)
    np.testing.assert_allclose(float(data["loss"]), whole.mean(), rtol=1e-6)
    for layer in range(2):
        output = model.model.language_model.layers[layer].self_attn.o_proj
        for head in range(4):
            width = output.in_features // 4

            def zero(module, arguments, head=head, width=width):
                states = arguments[0].clone()
                states[..., head * width : (head + 1) * width] = 0
                return (states,)

            handle = output.register_forward_pre_hook(zero)
            change = losses(model, processor, corpus) - whole
            handle.remove()
            cell = data.sel(stack="decoder", layer=layer + 1, head=head + 1, ablation="zero")
            np.testing.assert_allclose(float(cell["loss_change"]), change.mean(), rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(float(cell["loss_change_se"]), change.std(ddof=1) / 2, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "name",
    [
        "circuits", "composition", "context", "convexity", "distances", "edges", "effects", "gating", "gradients",
        "logitlens", "removal", "roles", "rollout", "relevance",
    ],
)  # fmt: skip
def test_every_lens_for_language_models_takes_texts_with_pictures(subject, corpus, name):
    """What is known of a text with a picture is known of the language model alone, by the names of its stack."""
    data = lo.look(subject, corpus, name, progress=False)[name].data
    assert [str(stack) for stack in data["stack"].values] == ["decoder"]
    assert any(bool(np.isfinite(data[v].values).any()) for v in data.data_vars if data[v].dtype.kind == "f")


def test_direct_effects_sum_to_the_logit(subject, corpus):
    data = lo.look(subject, corpus, "effects", progress=False)["effects"].data
    np.testing.assert_allclose(float(data["terms"].sum()), float(data["logit"]), rtol=1e-6)


def test_the_last_row_of_the_logit_lens_is_the_model(subject, corpus):
    data = lo.look(subject, corpus, "logitlens", progress=False)["logitlens"].data
    np.testing.assert_allclose(
        float(data["loss"].sel(stack="decoder").values.ravel()[-1]),
        losses(speaking(), processor_of("llava"), corpus).mean(),
        rtol=1e-6,
    )
