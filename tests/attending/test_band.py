"""Padding and a band without the n×n mask: every reader against the same mask written out, in float64."""

import copy
from dataclasses import replace

import pytest
import torch

from lorgnette.attending import sweep
from lorgnette.attending.band import Band, BandMask
from lorgnette.attending.blocks import keys_of
from lorgnette.attending.entropy import swept_entropy
from lorgnette.attending.scores import Scores, dense, fused, per_query_head, softmax
from lorgnette.attending.sweep import Wanted, from_matrix, swept
from lorgnette.contributions.pairs import visible
from lorgnette.lens.norms.pair_sample import visible_pairs

BANDS = [Band(causal=True), Band(causal=True, window=3), Band(window=2), Band(causal=True, window=0)]
CPU = torch.device("cpu")


def by_definition(band: Band, queries: int, keys: int) -> torch.Tensor:
    """A key is visible if no rule hides it, pair by pair."""
    out = torch.zeros(queries, keys, dtype=torch.bool)
    for row in range(queries):
        for key in range(keys):
            distance = row + keys - queries - key
            near = band.window is None or abs(distance) <= band.window
            out[row, key] = near and (distance >= 0 or not band.causal)
    return out


def padding(kind: str, keys: int) -> torch.Tensor | None:
    mask = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    mask[1, ..., : keys // 3] = kind != "left"
    mask[1, ..., -(keys // 3) :] = kind != "right"
    return None if kind == "none" else mask


def both(band: Band, side: str, *, queries=11, keys=11, groups=2, bias=False, softcap=None, dtype=torch.float64):
    """The same scores with a `BandMask` and grouped keys, and with everything written out; and the values of each."""
    make = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(*shape, generator=make).to(dtype)

    query, key, value = normal(2, 4, queries, 8), normal(2, groups, keys, 8), normal(2, groups, keys, 6)
    added = normal(1, 4, queries, keys) if bias else None
    padded = padding(side, keys)
    whole = by_definition(band, queries, keys).expand(2, 1, -1, -1)
    whole = whole if padded is None else whole & padded
    compact = Scores(query, key, 0.6, BandMask((2, 1, queries, keys), padded, band, CPU), added, softcap=softcap)
    plain = Scores(query, per_query_head(key, 4), 0.6, whole, added, softcap=softcap)
    return (compact, value), (plain, per_query_head(value, 4))


@pytest.mark.parametrize("band", [Band(), *BANDS])
@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (3, 7), (7, 3), (1, 5)])
def test_a_band_by_its_definition(band, queries, keys):
    exact = by_definition(band, queries, keys)
    assert torch.equal(band.keys(slice(None), queries, keys, CPU), exact)
    first, behind = band.limits(queries, keys, CPU)
    assert torch.equal(behind - first, exact.sum(-1))
    assert all(exact[i, first[i] : behind[i]].all() for i in range(queries))
    first, behind = band.query_range(queries, keys, CPU)
    assert torch.equal((behind - first).clamp(min=0), exact.sum(0))
    for start in range(queries):
        seen = keys_of(band, slice(start, min(start + 2, queries)), queries, keys)
        outside = exact[start : start + 2].clone()
        outside[:, seen] = False
        assert not outside.any()
        assert seen.stop > seen.start


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("size", [{}, {"queries": 4}, {"bias": True}, {"softcap": 2.0}, {"groups": 4}], ids=str)
def test_every_reader_of_a_compact_mask(band, side, size, monkeypatch):
    (compact, value), (plain, repeated) = both(band, side, **size)
    queries, keys = compact.shape[2:]
    assert torch.equal(compact.visible(), plain.visible())
    assert torch.equal(compact.visible_keys(), plain.visible_keys())
    assert not compact.rows_alike
    asked = torch.rand(2, queries, generator=torch.Generator().manual_seed(1)) < 0.7
    assert torch.equal(compact.query_counts(asked), plain.query_counts(asked))
    kinds = torch.rand(2, 3, keys) < 0.5
    assert torch.equal(visible_pairs(compact, asked, kinds), visible_pairs(plain, asked, kinds))
    places = [each.flatten() for each in torch.meshgrid(*(torch.arange(n) for n in compact.shape), indexing="ij")]
    assert torch.equal(visible(compact, *places), plain.visible_keys().expand(plain.shape).flatten())
    for rows in (slice(1, 3), [2, 0], torch.tensor([3])):
        for heads in (slice(None), slice(1, 3)):
            torch.testing.assert_close(
                dense(compact.block(slice(1, 2), rows, heads)), dense(plain.block(slice(1, 2), rows, heads))
            )
    torch.testing.assert_close(dense(compact), dense(plain))
    real = plain.visible()[:, 0] > 0
    mixed = fused(compact, value).transpose(1, 2)[real]
    torch.testing.assert_close(mixed, fused(plain, repeated).transpose(1, 2)[real])
    assert compact.allowed.intact
    received = torch.rand(2, queries, dtype=torch.float64)
    want = Wanted(
        torch.rand(2, keys, 3), True, True, torch.rand(2, keys) < 0.6, True, (-1, 0, 2), received, context=True
    )
    weights = softmax(dense(plain))
    exact = from_matrix(weights, replace(want, features=want.features.double()))
    exact.context = weights @ repeated
    for block in (2**19, 60):
        monkeypatch.setitem(sweep.BLOCK, "cpu", block)
        mine = swept(compact, value, want)
        for name in ("average", "entropy", "peak", "peak_among", "at", "received", "context"):
            torch.testing.assert_close(mine[name], exact[name], msg=lambda text, name=name: f"{name}: {text}")
        some = exact["peak_among"] > 0
        assert torch.equal(mine["peak_position"].transpose(1, 2)[real], exact["peak_position"].transpose(1, 2)[real])
        assert torch.equal(mine["peak_among_position"][some], exact["peak_among_position"][some])


@pytest.mark.parametrize("band", BANDS)
def test_blocks_of_weights_and_the_entropys_gradient(band, monkeypatch):
    (compact, _), (plain, _) = both(band, "left")
    seen = torch.zeros(plain.shape, dtype=torch.float64)

    def watch(weights, texts, rows):
        seen[texts, :, rows] = weights

    monkeypatch.setitem(sweep.BLOCK, "cpu", 100)
    swept(compact, None, Wanted(block=watch))
    torch.testing.assert_close(seen, softmax(dense(plain)))
    leaves = [tensor.requires_grad_() for tensor in (compact.query, compact.key)]
    mine = torch.autograd.grad(swept_entropy(compact).square().sum(), leaves)
    scores = dense(replace(plain, query=leaves[0], key=per_query_head(leaves[1], 4)))
    logs = scores.masked_fill(~plain.visible_keys(), -1e30).log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1).masked_fill(plain.visible().eq(0), 0.0)
    exact = torch.autograd.grad(entropy.square().sum(), leaves)
    torch.testing.assert_close(mine, exact)


def test_a_touched_mask_is_the_whole_mask():
    """Whatever a model does with its mask, it gets the numbers of the n×n mask."""
    padded = padding("right", 5)

    def new():
        return BandMask((2, 1, 5, 5), padded, Band(causal=True, window=2), CPU)

    whole = new().whole.clone()
    assert (new().shape, new().dtype, new().device, new().ndim, len(new())) == ((2, 1, 5, 5), torch.bool, CPU, 4, 2)
    reading = [
        lambda m: ~m,
        lambda m: m[:, :, 1:3, :4],
        lambda m: torch.where(m, 0.0, -1e9),
        lambda m: 1.0 - m.float(),
        lambda m: torch.zeros(5).masked_fill(m, 1.0),
        lambda m: m & torch.tensor([True, False, True, True, True]),
        lambda m: m.expand(2, 3, 5, 5),
        lambda m: m.squeeze(1),
        lambda m: torch.from_numpy(m.numpy()),
        lambda m: torch.tensor(m.tolist()),
        copy.deepcopy,
        lambda m: torch.cat([m, m], -1),
    ]
    for read in reading:
        assert type(read(new())) is torch.Tensor
        assert torch.equal(read(new()), read(whole))


def test_a_mask_that_may_have_been_written_to_is_no_longer_compact():

    def new():
        return BandMask((2, 1, 5, 5), padding("left", 5), Band(causal=True), CPU)

    query, key = torch.rand(2, 2, 1, 5, 4)
    for touch in (lambda m: m[:, :, 0].fill_(True), lambda m: m.logical_and_(torch.eye(5, dtype=torch.bool))):
        mask, whole = new(), new().whole.clone()
        assert Scores(query, key, 1.0, mask).hidden[1] == Band(causal=True)
        touch(mask), touch(whole)
        assert not mask.intact
        scores = Scores(query, key, 1.0, mask)
        assert scores.hidden[1] == Band()
        assert torch.equal(scores.visible_keys(), whole)
        assert torch.equal(scores.visible(), whole.sum(-1))
