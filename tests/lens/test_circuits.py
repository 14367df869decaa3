"""Circuits against the full matrices, and on heads whose maps are known."""

import numpy as np
import pytest
import torch
from tiny import examples, subject

import lorgnette as lo
from lorgnette.lens.circuits.formulas import composition, effective_rank, eigenvalues, positive_share, singular_values
from lorgnette.lens.circuits.lens import Maps


def looked(whole):
    return lo.look(whole, examples(), ["circuits"], progress=False)["circuits"].data


def full_matrices(site):
    maps = Maps.of(site)
    return maps.query @ maps.key.mT, maps.value @ maps.output


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "marian"])
def test_spectra_are_those_of_the_full_matrices(family):
    whole = subject(family)
    data = looked(whole)
    for site in whole.anatomy.sites:
        place = {"stack": site.site.name, "layer": site.site.layer + 1}
        for circuit, matrices in zip(("qk", "ov"), full_matrices(site), strict=True):
            values = torch.linalg.svdvals(matrices)
            shares = values / values.sum(-1, keepdim=True)
            rank = torch.special.entr(shares).sum(-1).exp()
            found = data["effective_rank"].sel({**place, "circuit": circuit}).values[: len(rank)]
            np.testing.assert_allclose(found, rank.detach(), rtol=1e-6)
        if site.site.kind == "self":
            roots = torch.linalg.eigvals(full_matrices(site)[1])
            share = roots.real.sum(-1) / roots.abs().sum(-1)
            np.testing.assert_allclose(data["positive"].sel(place).values[: len(share)], share.detach(), atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_composition_is_the_norm_of_the_product(family):
    whole = subject(family)
    data = looked(whole)["composition"]
    early, late = whole.anatomy.sites[0], whole.anatomy.sites[1]
    (_, ov_a), (qk_b, ov_b) = full_matrices(early), full_matrices(late)
    name = early.site.name
    a, b = f"{name} 1-1", f"{name} 2-3"
    products = {"query": ov_a[0] @ qk_b[2], "key": ov_a[0] @ qk_b[2].mT, "value": ov_a[0] @ ov_b[2]}
    norms = {"query": qk_b[2].norm(), "key": qk_b[2].norm(), "value": ov_b[2].norm()}
    for way, product in products.items():
        expected = float(product.norm() / (ov_a[0].norm() * norms[way]))
        assert float(data.sel(way=way, head_a=a, head_b=b)) == pytest.approx(expected, rel=1e-6)
        assert np.isnan(float(data.sel(way=way, head_a=b, head_b=a)))  # a later head writes nothing for an earlier one


def test_planted_maps_are_found_and_random_ones_are_not():
    torch.manual_seed(0)
    keep = torch.linalg.qr(torch.randn(64, 8, dtype=torch.float64)).Q
    copies, reverses = (keep, keep.mT), (keep, -keep.mT)
    assert float(positive_share(eigenvalues(*copies))) == pytest.approx(1)
    assert float(positive_share(eigenvalues(*reverses))) == pytest.approx(-1)
    assert float(effective_rank(singular_values(*copies))) == pytest.approx(8)
    shares = [
        float(
            positive_share(
                eigenvalues(torch.randn(64, 8, dtype=torch.float64), torch.randn(8, 64, dtype=torch.float64))
            )
        )
        for _ in range(50)
    ]
    assert abs(np.mean(shares)) < 0.1
    one = (keep[None], keep.mT[None])
    assert float(composition(one, one)) == pytest.approx(8**-0.5)


def test_a_language_model_has_tokens_and_an_encoder_has_none():
    import transformers as hf
    from tiny import (
        tiny_model,  # noqa: F401
        tokenizer,
    )

    torch.manual_seed(0)
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64)).eval()
    data = looked(lo.Subject(model, tokenizer("gpt2")))
    assert float(data["copied"].min()) >= 0
    assert " → " in str(data["turns"].sel(stack="decoder", layer=1, head=1).item())
    assert "copied" not in looked(subject("bert"))


def test_a_head_that_writes_the_embedding_back_copies():
    import transformers as hf
    from tiny import tokenizer

    torch.manual_seed(0)
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=97, n_embd=32, n_layer=1, n_head=1, n_positions=64)).eval()
    with torch.no_grad():
        attention = model.transformer.h[0].attn
        attention.c_attn.weight[:, 64:] = torch.eye(32)
        attention.c_proj.weight.copy_(torch.eye(32))
    data = looked(lo.Subject(model, tokenizer("gpt2")))
    assert float(data["copied"].squeeze()) > 0.95
    assert float(data["positive"].squeeze()) == pytest.approx(1, abs=1e-5)


def test_where_scores_are_not_bilinear_the_ov_circuits_are_there():
    """A model without a record that has norms behind W_Q and W_K: OV circuits alone, and a note says why."""
    from tiny import tokenizer
    from tiny.architectures import model_of_type

    whole = lo.Subject(model_of_type("qwen3_moe"), tokenizer("gpt2"))
    result = lo.look(whole, examples(), ["circuits"], progress=False)["circuits"]
    data = result.data
    assert int(data["effective_rank_count"].sel(circuit="qk").max()) == 0
    assert int(data["effective_rank_count"].sel(circuit="ov").min()) == 1
    for site in whole.anatomy.sites:
        maps = site.head_weights()
        roots = torch.linalg.eigvals((maps.value @ maps.output).double())
        share = roots.real.sum(-1) / roots.abs().sum(-1)
        found = data["positive"].sel(stack="decoder", layer=site.site.layer + 1).values
        np.testing.assert_allclose(found, share.detach(), atol=1e-5)
    value = data["composition"].sel(way="value", head_a="decoder 1-1", head_b="decoder 2-1")
    assert float(value) > 0
    assert data["composition"].sel(way=["query", "key"]).isnull().all()
    (note,) = (note for note in result.provenance.notes if "QK" in note)
    assert note == (
        "circuits: no QK circuits of decoder layer 1, decoder layer 2: a Qwen3MoeRMSNorm comes behind the map, so that "
        "scores are not bilinear in it"
    )
