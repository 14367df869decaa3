"""SHAP and LIME against their definitions in float64, occlusion and integrated gradients against Captum's own."""

import hashlib
import sys
from itertools import combinations
from math import factorial

import numpy as np
import pytest
import torch
from headed import examples, headed

from lorgnette.errors import UserError
from lorgnette.explaining import CAPTUM, Next, explain, explanations
from lorgnette.explaining.by_captum import DRAWN
from lorgnette.explaining.inputs import words_changed
from lorgnette.lens.rationales.lens import Rationales


def test_without_captum_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    watched = headed("bert-classifier")
    for asked in (lambda: explain(watched, watched.encode(examples((5,))), "shap"), lambda: Rationales(["lime"])):
        with pytest.raises(UserError, match=r"'captum'.*pip install 'lorgnette\[captum\]'"):
            asked()
    assert not set(CAPTUM) & set(explanations())


captum = pytest.importorskip("captum.attr", reason="Captum is not installed: pip install 'lorgnette[captum]'")


def value(watched, ids, inner, target):
    """f(tokens that are there): the others are the mask token."""
    found = {}

    def of(there):
        if there not in found:
            changed = ids.clone()
            for number, place in enumerate(inner):
                if number not in there:
                    changed[0, place] = watched.tokenizer.mask_token_id
            with torch.no_grad():
                found[there] = watched.model(input_ids=changed).logits[0, target].item()
        return found[there]

    return of


def one_text(length=5):
    watched = headed("bert-classifier")
    batch = watched.encode(examples((length,)))
    inner = (~batch.source.special[0]).nonzero()[:, 0].tolist()
    return watched, batch, inner, value(watched, batch.source.ids, inner, 1)


def test_shap_gives_shapley_values():
    watched, batch, inner, of = one_text()
    n = len(inner)
    shapley = [
        sum(
            factorial(size) * factorial(n - size - 1) / factorial(n)
            * (of(frozenset({*rest, token})) - of(frozenset(rest)))
            for size in range(n)
            for rest in combinations([other for other in range(n) if other != token], size)
        )
        for token in range(n)
    ]  # fmt: skip
    found = explain(watched, batch, "shap", 1).tokens[0]
    whole, nothing = of(frozenset(range(n))), of(frozenset())
    assert found[inner].sum().item() == pytest.approx(whole - nothing, rel=1e-4)
    spread = max(shapley) - min(shapley)
    assert np.abs(found[inner].numpy() - shapley).max() < 0.05 * spread  # 522 sets are drawn
    assert not found[batch.source.special[0]].any()


def test_lime_is_the_weighted_ridge_regression_of_its_draws():
    watched, batch, inner, of = one_text()
    n = len(inner)
    key = f"lime/{batch.source.ids[0, inner].tolist()}"
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]))
    draws = [torch.bernoulli(torch.full((1, n), 0.5), generator=generator)[0].tolist() for _ in range(DRAWN + 2 * n)]
    sets = np.array(draws)
    heights = np.array([of(frozenset(np.flatnonzero(there).tolist())) for there in sets])
    cosine = np.array([there.sum() / (np.sqrt(there.sum()) * np.sqrt(n)) if there.any() else 0.0 for there in sets])
    weights = np.exp(-((1 - cosine) ** 2) / (2 * 0.25**2))
    middle, height = (weights @ sets) / weights.sum(), (weights @ heights) / weights.sum()
    apart = sets - middle
    slope = np.linalg.solve(apart.T @ (weights[:, None] * apart) + np.eye(n), apart.T @ (weights * (heights - height)))
    found = explain(watched, batch, "lime", 1).tokens[0]
    assert np.allclose(found[inner].numpy(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", CAPTUM)
def test_a_text_gets_the_same_in_any_batch(method):
    watched = headed("bert-classifier")
    texts = examples((7, 3))
    together = explain(watched, watched.encode(texts), method)
    for number, text in enumerate(texts):
        alone = explain(watched, watched.encode([text]), method)
        length = alone.tokens.shape[1]
        torch.testing.assert_close(together.tokens[number, :length], alone.tokens[0], rtol=1e-5, atol=1e-7)
        assert not together.tokens[number, length:].any()


@pytest.mark.parametrize(("kind", "target"), [("marian", None), ("gpt2", Next(at=3)), ("bert-classifier", (0, 1))])
def test_translations_next_tokens_and_differences(kind, target):
    """Every token's relevance adds up to what hiding all of them takes away."""
    watched = headed(kind)
    batch = watched.encode(examples((6,)))
    found = explain(watched, batch, "shap", target)
    inner = batch.source.mask & ~batch.source.special
    nothing = explain(watched, batch, "occlusion", target)
    assert found.tokens.shape == nothing.tokens.shape
    assert found.start.item() == pytest.approx(nothing.start.item())
    assert found.tokens[inner].abs().max() > 0
    assert not found.tokens[~inner].any()


def presence(watched, batch, target):
    """f as a function of how much of each token's vector is there, between the mask token's and its own."""
    inner = batch.source.mask[0] & ~batch.source.special[0]
    table = watched.model.get_input_embeddings()
    nothing = table.weight[watched.tokenizer.mask_token_id].detach()

    def of(there):
        share = torch.ones(len(there), len(inner), dtype=there.dtype).index_put(
            (torch.arange(len(there))[:, None], inner.nonzero()[:, 0]), there
        )[..., None]
        copies = {name: tensor.expand(len(there), -1) for name, tensor in batch.inputs.items()}
        with words_changed(watched, lambda vectors: nothing + share * (vectors - nothing)):
            return watched.model(**copies).logits[:, target]

    return of, inner


def test_occlusion_is_captums_ablation_and_integrated_gradients_are_captums():
    watched = headed("bert-classifier")
    batch = watched.encode(examples((7,)))
    of, inner = presence(watched, batch, 1)
    ones = torch.ones(1, int(inner.sum()), dtype=torch.float64)
    ablation = captum.FeatureAblation(of).attribute(ones, baselines=torch.zeros_like(ones))
    ours = explain(watched, batch, "occlusion", 1).tokens[:, inner]
    torch.testing.assert_close(ours, ablation, rtol=1e-9, atol=1e-12)
    gradients = captum.IntegratedGradients(of).attribute(
        ones, baselines=torch.zeros_like(ones), n_steps=16, method="gausslegendre"
    )
    ours = explain(watched, batch, "integrated_gradients", 1, steps=16).tokens[:, inner]
    torch.testing.assert_close(ours, gradients.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["bert-classifier", "gpt2-classifier"])
def test_gradient_times_input_is_captums(kind):
    """At the layer that gives the words their vectors, summed over dimensions."""
    watched = headed(kind)
    batch = watched.encode(examples((7,)))
    layer = watched.model.get_input_embeddings()
    theirs = captum.LayerGradientXActivation(lambda ids: watched.model(input_ids=ids).logits, layer)
    expected = theirs.attribute(batch.inputs["input_ids"], target=1).sum(-1).detach()
    ours = explain(watched, batch, "gradient_x_input", 1).tokens
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
