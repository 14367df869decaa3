"""Pictures and sound: patches and frames are tokens, and what is watched is what the model does."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny.sensing import MODELS, TRANSCRIBERS, made

import lorgnette as lo
from lorgnette.attending import Recorder
from lorgnette.errors import UserError
from lorgnette.subject import Subject

PAGE = Path(__file__).parents[2] / "docs" / "pictures-and-sound.md"


@pytest.mark.parametrize("name", MODELS)
def test_weights_norms_and_geometry(name):
    model, inputs = made(name)
    batch = lo.batch(inputs, tokens=MODELS[name][1])
    lenses = [lo.lens.get("weights"), lo.lens.get("norms"), lo.lens.get("geometry")]
    with torch.no_grad(), lo.watch(model, *lenses, batch=batch):
        watched = model(**inputs, output_hidden_states=True)
    with torch.no_grad():
        plain = model(**inputs)
    one, other = (output.get("last_hidden_state", output.get("logits")) for output in (watched, plain))
    torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-7)
    results = [lens.compute() for lens in lenses]
    entropy = results[0].data["entropy"]
    assert bool(entropy.notnull().all())
    assert entropy.sizes["layer"] == 2
    assert bool((results[1].data["norm"].sel(category="other") > 0).all())


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_are_those_of_eager_attention(name):
    model, inputs = made(name)
    recorder = Recorder.of("weights")
    with torch.no_grad(), lo.tapped(model, recorder):
        model(**inputs)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    for site in Subject(model).sites:
        kinds = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
        stack = kinds[site.name] if name in TRANSCRIBERS else "attentions"
        expected, weights = output[stack][site.layer].numpy(), recorder[site]["weights"].numpy()
        if name.startswith("wavlm"):  # it returns the mean over heads, repeated for each
            weights = np.broadcast_to(weights.mean(1, keepdims=True), weights.shape)
        np.testing.assert_allclose(weights, expected, atol=1e-6, rtol=1e-5)  # eager softmax may be float32


@pytest.mark.filterwarnings("ignore:Support for mismatched")  # of WavLM itself, with a mask
def test_wavlm_gates_its_position_bias():
    """By hand, from the paper: gates from each query's state scale the relative position bias; padding is hidden."""
    model, inputs = made("wavlm")
    mask = torch.ones(2, 500, dtype=torch.long)
    mask[1, 300:] = 0
    recorder = Recorder.of("weights")
    with torch.no_grad(), lo.tapped(model, recorder):
        hidden = model(**inputs, attention_mask=mask, output_hidden_states=True).hidden_states
    with torch.no_grad():
        plain = model(**inputs, attention_mask=mask, output_hidden_states=True).hidden_states
    torch.testing.assert_close(hidden[-1], plain[-1], atol=1e-10, rtol=1e-9)
    frames = model._get_feature_vector_attention_mask(49, mask)
    bias = model.encoder.layers[0].attention.compute_bias(49, 49)
    for site in Subject(model).sites:
        attention, x = model.encoder.layers[site.layer].attention, plain[site.layer]
        q, k, heads = (
            each.unflatten(-1, (4, 8)).transpose(1, 2) for each in (attention.q_proj(x), attention.k_proj(x), x)
        )
        update, reset = attention.gru_rel_pos_linear(heads).unflatten(-1, (2, 4)).sum(-1).sigmoid().unbind(-1)
        scale = update * (reset * attention.gru_rel_pos_const[..., 0] - 1) + 2
        scores = q @ k.mT / 8**0.5 + scale[..., None] * bias
        expected = scores.masked_fill(~frames[:, None, None].bool(), -torch.inf).softmax(-1)
        torch.testing.assert_close(recorder[site]["weights"], expected, atol=1e-10, rtol=1e-8)


def test_the_examples_of_the_page_run():
    """A model in each block behind the first, in one namespace; what it hands out is numbers."""
    shared, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    torch.manual_seed(0)
    exec(shared, names)
    models = []
    for block in blocks:
        exec(block, names)
        model = re.search(r"look_at\((\w+)", block)
        if model is None:
            continue
        models.append(model[1])
        for result, variable in (("weights", "entropy"), ("norms", "norm_share"), ("geometry", "sim")):
            data = names[result].data[variable]
            assert data.sizes["layer"] == 2
            assert data.sizes["head"] == 4
            kinds = data if "category" not in data.dims else data.sel(category="other")
            assert bool(np.isfinite(kinds.sel(stack="encoder")).all()), (models[-1], variable)
    assert models == ["vit", "dinov2", "dinov3", "clip", "siglip", "wav2vec2", "whisper"]
    assert names["seen"].stacks == ("vision", "decoder")
    weights = names["seen"]["decoder.2.weights"]
    torch.testing.assert_close(weights[:, :, -1].sum(-1), torch.ones(2, 4))
    assert bool((weights[:, :, -1, 1:10] > 0).all())
    mass = names["mass"].compute().data["mass"].sel(stack="decoder")
    np.testing.assert_allclose(mass.sel(category=["image", "text", "special"]).sum("category"), 1.0, rtol=1e-6)


def test_parts_of_a_picture_are_kinds_of_token():
    """The mass on registers is the sum of their columns, by hand."""
    model, inputs = made("dinov2-registers")
    batch = lo.batch(inputs, tokens=14, parts={"registers": range(1, 5)})
    lens = lo.lens.get("weights", parts=("registers",))
    with torch.no_grad(), lo.watch(model, lens, batch=batch):
        model(**inputs)
    with torch.no_grad():
        weights = lo.attention(model, **inputs)["weights"]
    expected = weights[..., 1:5].sum(-1).mean((1, 3))
    mass = lens.compute().data["mass"].sel(stack="encoder", category="registers").values
    np.testing.assert_allclose(mass, expected.numpy(), rtol=1e-6)
    with pytest.raises(UserError, match="positions are 0 to 13"):
        lo.batch(inputs, tokens=14, parts={"registers": [14]})
    with pytest.raises(UserError, match="category of token"):
        lo.batch(inputs, tokens=14, parts={"cls": [0]})


def test_a_trained_layer_scale_is_no_plain_residual():
    """DINO multiplies what attention gives before it is added: norms with the residual would be wrong, and are none."""
    model, _ = made("dinov3")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lambda" in name:
                parameter.uniform_(0.2, 0.9)
    assert Subject(model).anatomy.sites[0].lack("order") is not None
