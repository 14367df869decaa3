"""Every statistic of rows against loops in float64, for both paths."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lorgnette.attending import sweep
from lorgnette.attending.band import Band
from lorgnette.attending.scores import Scores, dense, softmax
from lorgnette.attending.sweep import Wanted, from_matrix, swept


def slow_row(query, key, scale, allowed, bias, softcap, sink=None):
    """The weights of one row from the definition; a sink is a key that is left out at the end."""
    scores = []
    for j in range(len(key)):
        s = scale * float(query @ key[j])
        if softcap is not None:
            s = softcap * math.tanh(s / softcap)
        scores.append(s + float(bias[j]) if allowed[j] else -math.inf)
    if max(scores) == -math.inf:
        return [0.0] * len(scores)
    if sink is not None:
        scores.append(sink)
    exps = [math.exp(s - max(scores)) for s in scores]
    return [e / sum(exps) for e in exps][: len(key)]


def case(seed, batch=2, head=3, queries=5, keys=5, spread=1.0, mask="padding", bias=False, softcap=None, sink=False):
    g = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    query, key, value = rand(batch, head, queries, 4) * spread, rand(batch, head, keys, 4), rand(batch, head, keys, 6)
    allowed = None
    if mask == "padding":
        allowed = torch.ones(batch, 1, 1, keys, dtype=torch.bool)
        allowed[0, ..., -2:] = False
    elif mask == "full":
        allowed = torch.rand(batch, 1, queries, keys, generator=g) < 0.6
        allowed[0, 0, 1] = False  # a row that may see nothing
    extra = rand(1, head, queries, keys) if bias else None
    sinks = rand(head) * 2 if sink else None
    return Scores(query, key, 0.5, allowed, extra, mask == "causal", softcap, sinks), value


def slow_weights(scores):
    batch, head, queries, keys = scores.shape
    out = torch.zeros(batch, head, queries, keys, dtype=torch.float64)
    allowed = torch.ones(batch, head, queries, keys, dtype=torch.bool)
    if scores.allowed is not None:
        allowed = allowed & scores.allowed
    if scores.causal:
        allowed = allowed & torch.ones(queries, keys).tril(keys - queries).bool()
    bias = torch.zeros(batch, head, queries, keys) if scores.bias is None else scores.bias.expand(out.shape)
    for b in range(batch):
        for h in range(head):
            for i in range(queries):
                row = slow_row(scores.query[b, h, i], scores.key[b, h], scores.scale, allowed[b, h, i],
                               bias[b, h, i], scores.softcap,
                               None if scores.sink is None else float(scores.sink[h]))  # fmt: skip
                out[b, h, i] = torch.tensor(row, dtype=torch.float64)
    return out


def wanted(scores, seed=0, positions=False):
    batch, head, queries, keys = scores.shape
    g = torch.Generator().manual_seed(seed)
    among = torch.rand(batch, keys, generator=g) < 0.5
    return Wanted(
        features=torch.rand(batch, head, keys, 2, generator=g, dtype=torch.float64),
        entropy=True,
        peak=True,
        among=among,
        positions=positions,
        offsets=(-2, -1, 0, 1, 9),
        received=torch.rand(batch, queries, generator=g, dtype=torch.float64),
        context=True,
    )


def assert_matches(measured, weights, want, value, sinks=False):
    batch, head, queries, keys = weights.shape
    for b in range(batch):
        for h in range(head):
            for i in range(queries):
                row = weights[b, h, i].tolist()
                left = 1 - sum(row) if sinks and sum(row) > 0 else 0.0
                entropy = -sum(p * math.log(p) for p in (*row, left) if p > 0)
                if sinks:
                    assert float(measured.sink[b, h, i]) == pytest.approx(left, abs=1e-9)
                assert float(measured.entropy[b, h, i]) == pytest.approx(entropy, abs=1e-9)
                assert float(measured.peak[b, h, i]) == pytest.approx(max(row), abs=1e-9)
                among = max([p for p, keep in zip(row, want.among[b].tolist(), strict=True) if keep], default=0.0)
                assert float(measured.peak_among[b, h, i]) == pytest.approx(among, abs=1e-9)
                for number, offset in enumerate(want.offsets):
                    there = 0 <= i + offset < keys
                    assert float(measured.at[b, h, i, number]) == pytest.approx(
                        row[i + offset] if there else 0, abs=1e-9
                    )
    expected = torch.einsum("bhqk,bhkf->bhqf", weights, want.features)
    torch.testing.assert_close(measured.average, expected, rtol=1e-9, atol=1e-9)
    received = torch.einsum("bq,bhqk->bhk", want.received, weights)
    torch.testing.assert_close(measured.received, received, rtol=1e-9, atol=1e-9)
    if measured.context is not None:
        torch.testing.assert_close(measured.context, weights @ value, rtol=1e-9, atol=1e-9)


KINDS = [
    {},
    {"mask": "none"},
    {"mask": "full"},
    {"mask": "causal"},
    {"mask": "causal", "queries": 3},
    {"mask": "full", "bias": True},
    {"mask": "padding", "bias": True, "softcap": 3.0},
    {"mask": "causal", "softcap": 2.0},
    {"sink": True},
    {"mask": "full", "bias": True, "sink": True},
    {"mask": "causal", "queries": 3, "sink": True},
]


def matrix(scores, want):
    """What is read off the matrix."""
    sunk = None if scores.sink is None else scores.visible() > 0
    return from_matrix(softmax(dense(scores), scores.sink), want, sunk)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("block", [1, 7, 26, 2**19])
def test_swept_and_matrix_match_the_definition(kind, block, monkeypatch):
    monkeypatch.setitem(sweep.BLOCK, "cpu", block)
    scores, value = case(1, **kind)
    weights, want = slow_weights(scores), wanted(scores)
    sinks = scores.sink is not None
    want = replace(want, sink=sinks)
    assert_matches(swept(scores, value, want), weights, want, value, sinks)
    assert_matches(matrix(scores, want), weights, want, value, sinks)


@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.sampled_from([3, 11, 2**19]))
def test_paths_agree_with_positions(seed, kind, block):
    scores, value = case(seed, **kind)
    want = wanted(scores, seed, positions=True)
    before = sweep.BLOCK["cpu"]
    sweep.BLOCK["cpu"] = block
    try:
        one = swept(scores, value, want)
    finally:
        sweep.BLOCK["cpu"] = before
    other = matrix(scores, want)
    sees = scores.visible().expand(scores.shape[:3]) > 0
    assert torch.equal(one.peak_position[sees], other.peak_position[sees])
    for name in ("average", "entropy", "peak", "peak_among", "at", "received"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)


def test_entropy_of_extreme_scores_is_exact_in_float32():
    """Scores of ±200: float32 stays within 1e-5 nats of float64, and never below zero."""
    scores, value = case(3, queries=40, keys=40, spread=100.0, mask="none")
    assert float(dense(scores).abs().max()) > 150
    exact = from_matrix(softmax(dense(scores)), Wanted(entropy=True)).entropy
    single = Scores(scores.query.float(), scores.key.float(), scores.scale)
    # The same rounded inputs in both precisions: what is tested is the sum, not the rounding of the inputs.
    double = Scores(single.query.double(), single.key.double(), scores.scale)
    exact = from_matrix(softmax(dense(double)), Wanted(entropy=True)).entropy
    fast = swept(single, value.float(), Wanted(entropy=True)).entropy
    assert float(fast.min()) >= 0.0
    error = (fast.double() - exact).abs()
    # Near ties, the rounding of a score of 200 itself (2e-5) moves the entropy; elsewhere it is exact to 1e-5.
    assert float(error.max()) < 1e-4
    assert float(error.median()) < 1e-6


def test_half_precision_statistics_are_float32():
    scores, value = case(4, mask="none", spread=8.0)
    half = Scores(scores.query.bfloat16(), scores.key.bfloat16(), scores.scale)
    wide = Scores(half.query.double(), half.key.double(), scores.scale)
    entropy = swept(half, value.bfloat16(), Wanted(entropy=True)).entropy
    assert entropy.dtype == torch.float32
    torch.testing.assert_close(entropy.double(), swept(wide, value, Wanted(entropy=True)).entropy, rtol=0, atol=1e-5)


def test_visible_counts_keys():
    scores, _ = case(0, mask="padding")
    assert scores.visible().tolist() == [[[3] * 5], [[5] * 5]]
    scores, _ = case(0, mask="causal", queries=3)
    assert scores.visible().tolist() == [[[3, 4, 5]]] * 2
    assert Band(causal=True).keys(slice(1, 3), 3, 5, torch.device("cpu")).sum(-1).tolist() == [4, 5]


def test_memory_of_a_sweep_is_one_block(monkeypatch):
    """No tensor as large as the matrix is ever made."""
    monkeypatch.setitem(sweep.BLOCK, "cpu", 2**12)
    scores, value = case(0, batch=1, head=2, queries=128, keys=128, mask="none")
    sizes = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            out = function(*arguments, **(keywords or {}))
            if isinstance(out, torch.Tensor):
                sizes.append(out.numel())
            return out

    with Watch():
        swept(scores, value, Wanted(entropy=True, peak=True, context=True))
    assert max(sizes) <= 2 * (2**12 + 128)
