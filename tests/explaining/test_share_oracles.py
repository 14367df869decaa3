"""Relevance of single tokens and heads through several layers and encoder–decoders, against shares by hand."""

import numpy as np
import pytest
import torch
from headed import examples, headed
from shares import RULES, classified, t5_translated, translated

from lorgnette.explaining import explain


def close(found, expected, tolerance=1e-7):
    """Relative to the largest number of the text: ratios of 2019 explode, and so do their rounding errors."""
    scale = float(expected.abs().max())
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("method", RULES)
def test_every_token_and_head_of_three_layers(method):
    watched = headed("bert-classifier")
    assert len(watched.sites) == 3
    batch = watched.encode(examples((5, 3, 1)))
    found = explain(watched, batch, method, target=1)
    for text, length in enumerate(batch.lengths.tolist()):
        ids = batch.source.ids[text, :length]
        words, positions, heads = classified(watched.model, ids, 1, RULES[method])
        close(found.tokens[text, :length], words)
        close(found.positions[text, :length], positions)
        for site, by_head in zip(watched.sites, heads, strict=True):
            close(found.heads[site][text], by_head)


@pytest.mark.parametrize("method", RULES)
def test_every_token_and_head_of_a_translation(method):
    watched = headed("marian")
    batch = watched.encode(examples((4, 2)))
    found = explain(watched, batch, method)
    for text, (read, written) in enumerate(zip(batch.source.mask, batch.target.mask, strict=True)):
        source, target = batch.source.ids[text][read], batch.inputs["decoder_input_ids"][text][written]
        logits, (of_source, of_target), heads = translated(watched.model, source, target, RULES[method])
        with torch.no_grad():
            plain = watched.run(batch).logits[text][written]
        torch.testing.assert_close(logits, plain, rtol=1e-9, atol=1e-9)
        close(found.tokens[text][read], of_source[0])
        close(found.positions[text][read], of_source[1])
        close(found.target_tokens[text][written], of_target[0])
        close(found.target_positions[text][written], of_target[1])
        for site, by_head in found.heads.items():
            close(by_head[text], heads[site.name, site.layer])


@pytest.mark.parametrize("method", ["ah", "attnlrp"])
def test_every_token_and_head_of_a_t5(method):
    """Its norms compute in float32 whatever they are given: hence the tolerance."""
    watched = headed("t5")
    batch = watched.encode(examples((4, 2)))
    found = explain(watched, batch, method)
    for text, (read, written) in enumerate(zip(batch.source.mask, batch.target.mask, strict=True)):
        source, target = batch.source.ids[text][read], batch.inputs["decoder_input_ids"][text][written]
        logits, (of_source, of_target), heads = t5_translated(watched.model, source, target, method)
        with torch.no_grad():
            plain = watched.run(batch).logits[text][written]
        close(plain, logits, 1e-5)
        close(found.tokens[text][read], of_source, 1e-4)
        close(found.target_tokens[text][written], of_target, 1e-4)
        for site, by_head in found.heads.items():
            close(by_head[text], heads[site.name, site.layer], 1e-4)


@pytest.mark.parametrize(("family", "step", "tolerance"), [("marian", 1e-5, 1e-7), ("t5", 3e-3, 2e-3)])
def test_gradient_times_input_is_what_a_little_more_of_a_token_adds(family, step, tolerance):
    """∂/∂a Σ_t max logit_t with the vector of one token multiplied by a: two passes for each token, no gradient."""
    watched = headed(family)
    batch = watched.encode(examples((4,)))
    found = explain(watched, batch, "gradient_x_input")
    model, inputs = watched.model, batch.inputs
    scale = getattr(model.get_encoder(), "embed_scale", 1.0)
    with torch.no_grad():
        said = model(**inputs).logits.argmax(-1, keepdim=True)
        words = {
            "inputs_embeds": model.get_encoder().embed_tokens(inputs["input_ids"]) * scale,
            "decoder_inputs_embeds": model.get_decoder().embed_tokens(inputs["decoder_input_ids"]) * scale,
        }
    masks = {name: mask for name, mask in inputs.items() if name.endswith("mask")}

    @torch.no_grad()
    def value(side, token, factor):
        vectors = {name: tensor.clone() for name, tensor in words.items()}
        vectors[side][0, token] *= factor
        return float(model(**vectors, **masks).logits.gather(-1, said).sum())

    for side, tokens in (("inputs_embeds", found.tokens), ("decoder_inputs_embeds", found.target_tokens)):
        slopes = [
            (value(side, token, 1 + step) - value(side, token, 1 - step)) / (2 * step)
            for token in range(words[side].shape[1])
        ]
        close(tokens[0], torch.tensor(slopes, dtype=torch.float64), tolerance)


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_the_rollout_of_a_translation_in_loops(family):
    """½ A + ½ I of every encoder layer, multiplied up, then read by the last cross-attention: means over heads and
    over the positions of the target, from the weights of transformers' own eager attention."""
    watched = headed(family)
    example = examples((5,))
    batch = watched.encode(example)
    found = explain(watched, batch, "rollout").tokens[0]
    model = watched.model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(**batch.inputs, output_attentions=True)
    n = int(batch.source.mask[0].sum())
    mixed = np.eye(n)
    for layer in outputs.encoder_attentions:
        alpha, after = layer[0].double().numpy(), np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                for k in range(n):
                    weight = np.mean([alpha[h, i, k] for h in range(len(alpha))]) / 2 + (i == k) / 2
                    after[i, j] += weight * mixed[k, j]
        mixed = after
    cross = outputs.cross_attentions[-1][0].double().numpy()
    expected = [np.mean([cross[h, t, k] * mixed[k, j] * n for h in range(cross.shape[0])
                for t in range(cross.shape[1]) for k in range(n)]) for j in range(n)]  # fmt: skip
    close(found, torch.tensor(expected), 1e-6 if family == "t5" else 1e-12)


def test_integrated_gradients_token_by_token_are_the_mean_gradient_of_a_fine_path():
    """(x − x⁰) times the mean of ∂f/∂x at the middles of 400 parts of the path, on the plain model."""
    watched = headed("bert-classifier")
    batch = watched.encode(examples((5, 3)))
    found = explain(watched, batch, "integrated_gradients", target=1, steps=64)
    table, ids = watched.model.get_input_embeddings(), batch.inputs["input_ids"]
    inner = batch.source.mask & ~batch.source.special
    nothing = watched.tokenizer.mask_token_id or watched.tokenizer.pad_token_id
    end, begin = (table(one).detach() for one in (ids, ids.masked_fill(inner, nothing)))
    rest = {name: tensor for name, tensor in batch.inputs.items() if name != "input_ids"}
    slope, parts = torch.zeros_like(end), 400
    for part in range(parts):
        vectors = (begin + (part + 0.5) / parts * (end - begin)).requires_grad_()
        watched.model(inputs_embeds=vectors, **rest).logits[:, 1].sum().backward(inputs=[vectors])
        slope += vectors.grad / parts
    torch.testing.assert_close(found.tokens, ((end - begin) * slope).sum(-1), rtol=1e-4, atol=1e-6)
