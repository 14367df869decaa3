"""Norms, mixing, rank correlation and the bounded sample against slow versions and their own laws."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, spearmanr

from lorgnette.contributions.mixing import alti, cosine_distance, mixing_ratio, off_diagonal_share, terms
from lorgnette.contributions.norms import (
    FrozenNorm,
    all_heads_norms,
    gram,
    head_norms,
    output_products,
    summed_norms,
    transformed_norms,
)
from lorgnette.statistics.hashing import UNIT, bar, drawn, text_key
from lorgnette.statistics.spearman import rounded, spearman


def case(seed, batch=2, head=3, query=5, key=4, dim=6, model=9, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(batch, head, query, key, generator=generator, dtype=torch.float64).softmax(-1)
    value = torch.randn(batch, head, key, dim, generator=generator, dtype=torch.float64)
    output = torch.randn(head, dim, model, generator=generator, dtype=torch.float64)
    return weights.to(dtype), value.to(dtype), output.to(dtype)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 7))
def test_norms_of_pairs_are_those_of_the_big_tensor(seed, head, key):
    weights, value, output = case(seed, head=head, key=key)
    f = torch.stack([value[:, h] @ output[h] for h in range(head)], 1)
    big = weights[..., None] * f[:, :, None]  # [batch head query key model]
    products = output_products(output)
    g = gram(value, products)
    torch.testing.assert_close(all_heads_norms(weights, g), big.sum(1).norm(dim=-1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(transformed_norms(g), f.norm(dim=-1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(head_norms(value, products), f.norm(dim=-1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(summed_norms(g), f.sum(1).norm(dim=-1), rtol=1e-10, atol=1e-12)


def test_float32_keeps_five_digits():
    weights, value, output = case(0, head=12, query=40, key=40, dim=64, model=768)
    f = torch.einsum("bhkd,hdm->bhkm", value, output)
    wanted = torch.stack([(weights[:, :, i, :, None] * f).sum(1).norm(dim=-1) for i in range(40)], 1)
    found = all_heads_norms(weights.float(), gram(value.float(), output_products(output.float())))
    assert float(((found - wanted).abs() / wanted).max()) < 1e-5


def test_heads_that_cancel_have_no_norm():
    weights, value, output = case(1, head=2)
    value[:, 1], output[1] = value[:, 0], -output[0]
    weights[:, 1] = weights[:, 0]
    assert float(all_heads_norms(weights, gram(value, output_products(output))).max()) < 1e-7


@pytest.mark.parametrize("unbiased", [False, True])
def test_parts_through_a_frozen_norm_add_up(unbiased):
    torch.manual_seed(0)
    gamma, parts = torch.randn(8, dtype=torch.float64), torch.randn(5, 3, 8, dtype=torch.float64)
    norm = FrozenNorm(gamma, 1e-5, unbiased)
    whole = parts.sum(0)
    given = torch.stack([norm.directed(part) / norm.deviation(whole)[..., None] for part in parts]).sum(0)
    if not unbiased:
        wanted = torch.nn.functional.layer_norm(whole, (8,), gamma, eps=1e-5)
    else:
        wanted = gamma * (whole - whole.mean(-1, True)) / (whole.var(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(given, wanted)


def test_mixing_ratio_from_end_to_end():
    zero, one, nothing = torch.tensor(0.0), torch.tensor(3.0), torch.tensor(0.0)
    assert float(mixing_ratio(zero, one)) == 0.0
    assert float(mixing_ratio(one, zero)) == 1.0
    assert mixing_ratio(zero, nothing).isnan()
    assert float(mixing_ratio(one, one)) == 0.5


def test_alti_loop_by_loop():
    torch.manual_seed(0)
    weights, value, output = case(2, query=4)
    parts = terms(weights, torch.einsum("bhkd,hdm->bhkm", value, output))
    y = parts.sum(2) + 0.1
    found = alti(parts, y)
    for b in range(2):
        for i in range(4):
            for j in range(4):
                whole = sum(abs(float(v)) for v in y[b, i])
                away = sum(abs(float(v) - float(t)) for v, t in zip(y[b, i], parts[b, i, j], strict=True))
                assert abs(float(found[b, i, j]) - max(0.0, whole - away)) < 1e-12
    share = off_diagonal_share(found)
    assert abs(float(share[0, 1]) - (1 - float(found[0, 1, 1] / found[0, 1].sum()))) < 1e-12


def test_cosine_distance_knows_zero_vectors():
    a = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)
    b = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(cosine_distance(a, b), torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=30))
def test_spearman_is_scipys_also_with_ties(pairs):
    a, b = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    found = spearman(a, b)
    if len(set(a.tolist())) == 1 or len(set(b.tolist())) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


def test_rounding_ties_what_only_rounding_tells_apart():
    values = torch.tensor([0.3, 0.3 * (1 + 1e-9), 0.3001, 0.0], dtype=torch.float64)
    out = rounded(values)
    assert out[0] == out[1]
    assert out[1] < out[2]
    torch.testing.assert_close(out, values, rtol=2e-5, atol=0)


def keys(count, seed=0):
    return np.array([text_key(seed, number) for number in range(count)], dtype=np.uint64)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=6), st.integers(0, 99))
def test_everything_is_drawn_once_without_a_bar(sizes, seed):
    group, index, number = drawn(keys(len(sizes), seed), np.array(sizes), np.full(len(sizes), np.inf))
    for at, size in enumerate(sizes):
        assert sorted(index[group == at]) == list(range(size))
    assert (number > 0).all()
    assert number.max(initial=0) < 2**53


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=5), st.floats(0.0001, 2.0), st.integers(0, 99))
def test_a_bar_only_leaves_out(sizes, share, seed):
    """Whatever else is drawn, and however low the bar: an item's number is its own."""
    sizes, bars = np.array(sizes), np.full(len(sizes), share / UNIT)
    everything = dict(_by_item(drawn(keys(len(sizes), seed), sizes, np.full(len(sizes), np.inf))))
    some = dict(_by_item(drawn(keys(len(sizes), seed), sizes, bars)))
    assert some == {item: number for item, number in everything.items() if number < bars[0]}
    alone = dict(_by_item(drawn(keys(len(sizes), seed)[-1:], sizes[-1:], bars[-1:])))
    assert alone == {(0, i): n for (g, i), n in some.items() if g == len(sizes) - 1}


def _by_item(items):
    return (((int(g), int(i)), float(n)) for g, i, n in zip(*items, strict=True))


def test_numbers_are_exponential_and_places_uniform():
    group, index, number = drawn(keys(40), np.full(40, 5000), np.full(40, np.inf))
    assert kstest(number * UNIT, "expon").pvalue > 1e-3
    first = index[number < 0.02 / UNIT]
    assert 3000 < len(first) < 5000
    assert kstest(first / 5000, "uniform").pvalue > 1e-3
    # Neighbouring items have nothing to do with each other.
    order = np.zeros((40, 5000))
    order[group, index] = number
    assert abs(spearmanr(order[:, :-1].ravel(), order[:, 1:].ravel()).statistic) < 0.01


def test_bar_lets_enough_through():
    _, _, number = drawn(keys(10), np.full(10, 100_000), bar(np.full(10, 1_000_000), 500))
    assert 500 <= len(number) < 1000
    assert bar(np.array([0, 100]), 500).tolist() == [np.inf, np.inf]
