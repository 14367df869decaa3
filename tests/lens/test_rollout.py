"""Rollout: the papers' products written out, the laws, and models whose rollout is known."""

import math

import numpy as np
import pytest
import torch
from tiny import examples, subject

from lorgnette.attending import Tap, sweep
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.rollout import half_residual, rolled_out, row_shares
from lorgnette.errors import UserError
from lorgnette.lens.rollout.lens import Rollout, rollout
from lorgnette.testing import check_lens, run_lens


class Keep(Tap):
    wants_residual = True

    def __init__(self):
        self.calls = []

    def see(self, call):
        _ = call.weights
        self.calls.append(call)


def kept(tiny, example):
    """The calls of one text, and its batch."""
    keep, batch = Keep(), tiny.encode([example])
    with torch.no_grad(), tiny.tapped(keep):
        tiny.run(batch)
    return keep.calls, batch


def oracle_mixing(tiny, call, measure):
    """M of one layer, pair by pair, from the model's own weights and vectors."""
    alpha = call.weights[0].double()
    heads, n, _ = alpha.shape
    if measure == "weights":
        return [[sum(alpha[h, i, j].item() for h in range(heads)) / heads / 2 + (0.5 if i == j else 0.0)
                 for j in range(n)] for i in range(n)]  # fmt: skip
    around = tiny.anatomy[call.site]
    projections = around.head_weights()
    out = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            term = sum(alpha[h, i, j] * (call.value[0, h, j] @ projections.output[h]) for h in range(heads))
            if i == j:
                term = term + call.residual[0, i]
            if around.order == "post":  # the row's deviation is the same for all j
                term = (term - term.mean()) * around.norm.weight
            out[i][j] = math.sqrt(sum(x.item() ** 2 for x in term))
        total = sum(out[i])
        out[i] = [x / total for x in out[i]]
    return out


def oracle_product(layers):
    product = layers[0]
    products = [product]
    for layer in layers[1:]:
        n = len(layer)
        product = [[sum(layer[i][k] * product[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
        products.append(product)
    return np.array(products)


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "t5-encoder", "mpnet"])
@pytest.mark.parametrize("measure", ["weights", "norms"])
def test_it_is_the_product_of_the_papers_matrices(family, measure, monkeypatch):
    monkeypatch.setitem(sweep.BLOCK, "cpu", 60)  # several blocks of rows
    tiny, example = subject(family), examples((5,))[0]
    calls, batch = kept(tiny, example)
    expected = oracle_product([oracle_mixing(tiny, call, measure) for call in calls])
    projections = SiteWeights(tiny, layer_norm=True) if measure == "norms" else None
    with torch.no_grad():
        found = rollout(calls, projections=projections).numpy()
    tolerance = 1e-5 if family == "modernbert" else 1e-10  # its softmax is float32
    assert np.abs(found - expected).max() < tolerance
    assert np.abs(found.sum(-1) - 1).max() < tolerance

    data = run_lens(Rollout(), tiny, [tiny.encode([example])]).compute().data.sel(measure=measure)
    stack = calls[0].site.name
    categories = batch.source.categories
    for layer, rows in enumerate(expected):
        cell = data.sel(stack=stack, layer=layer + 1)
        assert cell.share.sel(category="self").item() == pytest.approx(np.diag(rows).mean(), abs=tolerance)
        other = rows[:, categories["other"][0].numpy()].sum(-1).mean()
        assert cell.share.sel(category="other").item() == pytest.approx(other, abs=tolerance)
        entropy = -sum(x * math.log(x) for x in rows.ravel() if x > 0) / len(rows)
        assert cell.entropy.item() == pytest.approx(entropy, abs=tolerance * 10)


@pytest.mark.parametrize("family", ["albert", "llama"])
def test_laws(family):
    check_lens(Rollout, subject(family), examples(), tolerance=1e-6 if family == "llama" else 1e-9)


def test_a_trace_is_rolled_out():
    tiny = subject("bert")
    trace = tiny.trace("w7 w8 . w9")
    found = rollout(trace)
    assert found.shape == (3, 6, 6)
    assert torch.allclose(found, rolled_out(half_residual(trace["weights"])))


def test_a_decoder_that_reads_an_encoder_is_missing():
    tiny = subject("marian")
    data = run_lens(Rollout(), tiny, [tiny.encode(examples((3, 4)))]).compute().data
    assert data.share.sel(stack=["decoder", "cross"]).isnull().all()
    assert data.share.sel(stack="encoder", layer=[1, 2], category=["self", "sep", "other"]).notnull().all()
    calls, _ = kept(tiny, examples((3,))[0])
    with pytest.raises(UserError, match="self-attention of one stack: encoder"):
        rollout(calls, "decoder")


def test_norms_are_missing_where_the_layer_is_no_sum():
    tiny = subject("gemma2", dtype=torch.float32)
    data = run_lens(Rollout(), tiny, [tiny.encode(examples((3, 4)))]).compute().data
    assert data.share.sel(measure="norms").isnull().all()
    assert data.share.sel(measure="weights", category="other").notnull().all()


def even(tiny):
    with torch.no_grad():
        for site in tiny.anatomy.sites:
            site.module.query.weight.zero_(), site.module.query.bias.zero_()
    return tiny


def test_even_heads_are_known_in_closed_form():
    """M = ½I + ½U has M^l = 2⁻ˡ I + (1 − 2⁻ˡ) U, so that 2⁻ˡ + (1 − 2⁻ˡ)/n is left of each token."""
    tiny, n = even(subject("bert")), 8
    data = run_lens(Rollout(), tiny, [tiny.encode(examples((n - 2,)))]).compute().data.sel(measure="weights")
    for layer in (1, 2, 3):
        left = data.share.sel(stack="encoder", layer=layer, category="self").item()
        assert left == pytest.approx(2**-layer + (1 - 2**-layer) / n)


def test_values_of_zero_leave_every_token_to_itself():
    tiny = subject("bert")
    with torch.no_grad():
        for site in tiny.anatomy.sites:
            site.module.value.weight.zero_(), site.module.value.bias.zero_()
    data = run_lens(Rollout(), tiny, [tiny.encode(examples())]).compute().data
    mine = data.share.sel(stack="encoder", category="self")
    assert abs(mine.sel(measure="norms") - 1).max() < 1e-12  # nothing arrives, whatever the weights say
    assert mine.sel(measure="weights", layer=3).item() < 0.7
    control = run_lens(Rollout(), subject("bert"), [tiny.encode(examples())]).compute().data
    assert control.share.sel(stack="encoder", category="self", measure="norms", layer=3).item() < 0.95


def test_rows_in_which_nothing_arrives_stay_zero():
    assert not row_shares(torch.zeros(2, 3)).any()


def test_bad_by():
    with pytest.raises(UserError, match="must be 'text' or 'token'"):
        Rollout(by="word")
