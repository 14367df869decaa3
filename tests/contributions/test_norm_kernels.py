"""The kernels of norms against matrices in float64: on a GPU, or in Triton's interpreter where there is none."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import subject as tiny_subject

from lorgnette.attending.band import Band, BandMask
from lorgnette.attending.scores import Scores, dense, per_query_head, softmax
from lorgnette.contributions.head_weights import Projections
from lorgnette.contributions.norms import FrozenNorm, all_heads_norms, gram, output_products, transformed_norms
from lorgnette.contributions.pairs import TokenPairs

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
from lorgnette.attending.sweep import Wanted
from lorgnette.gpu import attention as rows
from lorgnette.gpu import norms as kernels
from lorgnette.gpu import pairs as pair_kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.float32, torch.bfloat16) if torch.cuda.is_available() else (torch.float32,)
"""The interpreter multiplies no bfloat16."""
EXACT = 1e-5 if DEVICE == "cuda" else 3e-5  # … and cuts where a GPU rounds
HEADS, DIM, MODEL = 3, 32, 24
NORM = FrozenNorm(torch.linspace(0.5, 2, MODEL).to(DEVICE), 1e-5)


def normal(*shape, dtype=torch.float32, seed=0):
    make = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=make).to(DEVICE, dtype)


def around(output):
    """The output side of a site with a norm behind it."""
    return Projections(output, None, NORM)


def close(mine, exact, tolerance=EXACT):
    assert float((mine.double() - exact).abs().max()) <= tolerance * float(exact.abs().max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_gram_matrices(dtype):
    value, output = normal(2, HEADS, 19, DIM, dtype=dtype), normal(HEADS, DIM, MODEL)
    exact = gram(value.double(), output_products(output.double()))
    close(kernels.gram(value, around(output)), exact)
    grouped = gram(value[:, :1].expand(-1, HEADS, -1, -1).double(), output_products(output.double()))
    close(kernels.gram(value[:, :1], around(output)), grouped)
    close(kernels.head_norms(value[:, :1], around(output)), transformed_norms(grouped))


@pytest.mark.parametrize(("heads", "groups", "queries", "causal"), [(40, 8, 37, True), (5, 5, 21, False)])
def test_many_heads_in_pieces_of_texts_keys_and_rows(heads, groups, queries, causal, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", heads * 16 * 64)
    monkeypatch.setattr(kernels, "ROWS", 16)
    keys = queries + 6  # earlier keys, from a cache
    query, key = normal(2, heads, queries, DIM), normal(2, groups, keys, DIM, seed=1)
    value, output = normal(2, groups, keys, DIM, seed=2), normal(heads, DIM, MODEL)
    scores, weight = Scores(query, key, 0.3, causal=causal), normal(2, queries, seed=3).abs()
    log_sum = rows.measured(scores, value, Wanted(log_sum=True))["log_sum"]
    parts = Projections(output, None, None)
    (mine,) = kernels.received(scores, log_sum, [kernels.gram(value, parts)], [weight])
    exact = Scores(query.double(), key.double(), 0.3, causal=causal)
    matrix = gram(per_query_head(value, heads).double(), output_products(output.double()))
    norms = all_heads_norms(softmax(dense(exact)), matrix)
    close(mine, torch.einsum("bqk,bq->bk", norms, weight.double()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["plain", "causal", "padding", "cross", "window of grouped keys"])
def test_norms_of_all_heads_summed_over_queries(case, dtype):
    keys = 9 if case == "cross" else 19
    query, key = normal(2, HEADS, 19, DIM, dtype=dtype), normal(2, HEADS, keys, DIM, dtype=dtype, seed=1)
    value, output = normal(2, HEADS, keys, DIM, dtype=dtype, seed=2), normal(HEADS, DIM, MODEL)
    allowed = None
    if case == "padding":
        allowed = torch.ones(2, 1, 1, keys, dtype=torch.bool, device=DEVICE)
        allowed[1, ..., 12:] = False
    scores = Scores(query, key, 0.3, allowed, causal=case == "causal")
    if case == "window of grouped keys":
        mask = BandMask((2, 1, 19, keys), None, Band(causal=True, window=2), DEVICE)
        scores = replace(scores, key=key[:, :1], allowed=mask)
        key, allowed = key[:, :1].expand(-1, HEADS, -1, -1), mask.whole
        value = value[:, :1].expand(-1, HEADS, -1, -1)
    log_sum = rows.measured(scores, value, Wanted(log_sum=True))["log_sum"]
    parts = around(output)
    products = [parts.products, parts.normed_products]
    weights = [normal(2, 19, seed=3).abs(), normal(2, 19, seed=4).abs()]
    grams = [kernels.gram(value, parts, normed=normed) for normed in (False, True)]
    mine = kernels.received(scores, log_sum, grams, weights)
    exact = Scores(query.double(), key.double(), 0.3, allowed, causal=case == "causal")
    for number in range(2):
        norms = all_heads_norms(softmax(dense(exact)), gram(value.double(), products[number].double()))
        close(mine[number], torch.einsum("bqk,bq->bk", norms, weights[number].double()))
    alone = kernels.received(scores, log_sum, grams[:1], weights[:1])
    torch.testing.assert_close(alone[0], mine[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tokens_own_term_and_the_others(dtype):
    context, value = normal(2, HEADS, 7, DIM, dtype=dtype), normal(2, HEADS, 7, DIM, dtype=dtype, seed=1)
    weight, output, x = normal(2, HEADS, 7).sigmoid(), normal(HEADS, DIM, MODEL), normal(2, 7, MODEL, dtype=dtype)
    bias = normal(MODEL)
    total, own = kernels.projected(context, around(output)), kernels.own_projected(weight, value, around(output))
    exact_total = torch.einsum("bhnd,hdm->bnm", context.double(), output.double())
    exact_own = torch.einsum("bhn,bhnd,hdm->bnm", weight.double(), value.double(), output.double())
    close(total, exact_total)
    close(own, exact_own)
    grouped = kernels.own_projected(weight, value[:, :1], around(output))
    alike = value[:, :1].expand(-1, HEADS, -1, -1).double()
    close(grouped, torch.einsum("bhn,bhnd,hdm->bnm", weight.double(), alike, output.double()))
    exact_x, others, with_x = x.double(), exact_total - exact_own, exact_own + x.double()
    norm = FrozenNorm(NORM.gamma.double(), NORM.eps)
    scale = 1 / norm.deviation(exact_total + exact_x + bias.double())
    parts = [exact_own, others, with_x, exact_x, *(norm.directed(part) * scale[..., None] for part in (with_x, others))]
    mine = kernels.own_norms(total, own, x, bias, NORM)
    behind = norm.directed(exact_own).norm(dim=-1) * scale
    close(mine, torch.stack([*(part.norm(dim=-1) for part in parts), scale, behind]))


def test_weights_of_drawn_pairs():
    query, key, norms = normal(2, 3, 9, 20), normal(2, 3, 11, 20, seed=1), normal(2, 3, 11, seed=2).abs()
    key[:, 1] = key[:, 0]
    key[:, 2] = key[:, 0]
    scores = Scores(query, key, 0.4)
    make = torch.Generator().manual_seed(0)
    index = [torch.randint(0, size, (50,), generator=make).to(DEVICE) for size in (2, 3, 9, 11, 1)]
    number = torch.rand(50, dtype=torch.float64, generator=make).to(DEVICE)
    log_sum = torch.logsumexp(query.double() @ key.double().mT * 0.4, -1) / np.log(2)
    mine = pair_kernels.weighed(TokenPairs(*index, number, number), scores, log_sum.float(), norms)
    text, head, row, column, _ = index
    close(mine[1], softmax(dense(scores)).double()[text, head, row, column])
    close(mine[2], norms.double()[text, head, column])
    assert torch.equal(mine[0], number)
    grouped = replace(scores, key=key[:, :1])
    assert torch.equal(
        pair_kernels.weighed(TokenPairs(*index, number, number), grouped, log_sum.float(), norms)[1], mine[1]
    )


def test_a_token_that_sees_itself_alone_gets_exactly_nothing_from_others(monkeypatch):
    """The first of a causal text: what is left of total − own would be rounding."""
    import lorgnette as lo
    from lorgnette.attending import Call

    watched, launched, own_norms = tiny_subject("llama"), [], kernels.own_norms
    watched.model.to(DEVICE, torch.float32)

    def rounded_as_on_a_gpu(total, *given):
        launched.append(total)
        return own_norms(total * (1 + 1e-6), *given)

    monkeypatch.setattr(kernels, "own_norms", rounded_as_on_a_gpu)
    monkeypatch.setattr(Call, "kernels", lambda self, wanted: rows)
    data = lo.look(watched, ["the cat sat"], "norms:sample=0", progress=False)["norms"].data
    assert launched
    for ratio in ("attn_n", "attn_res_n", "attn_res_ln_n"):
        lowest, count = (data[name].sel(ratio=ratio).values for name in ("mixing_min", "mixing_min_count"))
        assert (lowest[count > 0] == 0).all()
    assert (data.mixing_min_count.sel(ratio="attn_n") > 0).all()


@pytest.mark.parametrize("model", ["bert", "llama"])
def test_the_lens_has_the_same_numbers_with_all_kernels(model, monkeypatch):
    """Norms, ratios and rank correlations of drawn pairs, from the classes that stand in for those of a CPU."""
    import lorgnette as lo
    from lorgnette import kernels as door
    from lorgnette.attending import Call
    from lorgnette.gpu.layer import FusedLayerNorms

    def looked():
        watched = tiny_subject(model, dtype=torch.float32)
        watched.model.to(DEVICE)
        texts = ["the cat sat on the mat", "a dog ran"]
        return lo.look(watched, texts, "norms:sample=30", progress=False)["norms"].data

    plain, taken, take = looked(), [], FusedLayerNorms.take
    monkeypatch.setattr(FusedLayerNorms, "take", lambda self, rows: (taken.append(self), take(self, rows))[1])
    monkeypatch.setattr(Call, "kernels", lambda self, wanted: rows)
    monkeypatch.setattr(door, "is_gpu", lambda device: True)
    if DEVICE == "cpu":
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    mine = looked()
    assert taken
    assert set(mine) == set(plain)
    for name, array in plain.items():
        np.testing.assert_allclose(mine[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
