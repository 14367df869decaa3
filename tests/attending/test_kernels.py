"""The fused kernels against the float64 matrix: on a GPU, or in Triton's interpreter where there is none."""

from dataclasses import replace

import pytest
import torch

from lorgnette.attending.band import Band, BandMask
from lorgnette.attending.call import Call, Site
from lorgnette.attending.scores import Scores
from lorgnette.attending.sweep import Measured, Wanted, from_matrix

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
GPU = torch.cuda.is_available()
from lorgnette.attending.scores import dense, softmax  # noqa: E402
from lorgnette.gpu import attention as kernels  # noqa: E402

DEVICE = "cuda" if GPU else "cpu"
OLD = tuple(map(int, kernels.triton.__version__.split(".")[:2])) < (3, 5)
pytestmark = pytest.mark.skipif(
    OLD and not GPU, reason="Triton's interpreter before 3.5 knows no function that a kernel calls: run them on a GPU"
)
STATISTICS = ("average", "entropy", "peak", "peak_among", "at", "received")


def scores_and_value(
    *, batch=2, heads=2, queries=19, keys=19, dim=20, width=24, dtype=torch.float32, causal=False, softcap=None,
    bias=False, allowed=None, seed=0,
):  # fmt: skip
    make = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=make).to(DEVICE, dtype)  # noqa: E731
    mask = None
    if allowed == "padding":
        mask = torch.rand(batch, 1, 1, keys, generator=make) < 0.7
        mask[..., 0] = True
    elif allowed == "window":
        near = torch.arange(queries)[:, None] - torch.arange(keys)
        mask = ((near >= 0) & (near < 5))[None, None]
    elif allowed == "blank rows":
        mask = torch.rand(batch, 1, queries, keys, generator=make) < 0.5
        mask[:, :, 1] = False
    query, key, value = (
        normal(batch, heads, queries, dim),
        normal(batch, heads, keys, dim),
        normal(batch, heads, keys, width),
    )
    added = normal(1, heads, queries, keys) if bias else None
    mask = None if mask is None else mask.to(DEVICE)
    return Scores(query, key, 2 * dim**-0.5, mask, added, causal, softcap), value


def wanted(scores: Scores, features=3, per_head=False, **options) -> Wanted:
    batch, heads, queries, keys = scores.shape
    make = torch.Generator().manual_seed(1)
    shape = (batch, heads, keys, features) if per_head else (batch, keys, features)
    columns = torch.rand(*shape, generator=make).round().to(scores.query) if features else None
    among = (torch.rand(batch, keys, generator=make) < 0.6).to(DEVICE)
    among[:, 0] = True
    rows = torch.rand(batch, queries, generator=make).to(DEVICE)
    full = Wanted(
        features=columns, entropy=True, peak=True, among=among, offsets=(-1, 0, 1, 4), received=rows, context=True
    )
    return replace(full, **options)


def by_matrix(scores: Scores, value: torch.Tensor, want: Wanted) -> Measured:
    """The definitions, in float64."""
    double = lambda tensor: None if tensor is None else tensor.double()  # noqa: E731
    exact = Scores(scores.query.double(), scores.key.double(), scores.scale, scores.allowed, double(scores.bias),
                   scores.causal, scores.softcap)  # fmt: skip
    weights = softmax(dense(exact))
    out = from_matrix(weights, replace(want, features=double(want.features), received=double(want.received)))
    out.context = weights @ value.double()
    return out


CASES = {
    "plain": {},
    "whole blocks": {"queries": 32, "keys": 32},
    "causal": {"causal": True},
    "causal with a cache": {"causal": True, "keys": 30},
    "cross": {"keys": 9},
    "softcap": {"softcap": 5.0},
    "bias": {"bias": True},
    "padding": {"allowed": "padding"},
    "window": {"allowed": "window"},
    "blank rows": {"allowed": "blank rows"},
    "head size 64": {"dim": 64, "width": 64},
    "half precision": {"dtype": torch.float16, "dim": 32, "width": 48},
    "everything": {"bias": True, "causal": True, "allowed": "padding", "softcap": 3.0},
}


@pytest.mark.parametrize("name", CASES)
def test_every_statistic_is_that_of_the_matrix(name):
    scores, value = scores_and_value(**CASES[name])
    want = wanted(scores)
    assert kernels.refusal(scores, value, want) is None
    exact, fused = by_matrix(scores, value, want), kernels.measured(scores, value, want)
    for statistic in STATISTICS:
        torch.testing.assert_close(fused[statistic].double(), exact[statistic], rtol=1e-5, atol=2e-6, msg=statistic)
    loose = 1e-5 if scores.query.dtype == torch.float32 else 2e-3
    torch.testing.assert_close(fused["context"].double(), exact["context"], rtol=loose, atol=loose)


def test_positions_are_those_of_the_largest_weights():
    scores, value = scores_and_value(allowed="padding")
    want = wanted(scores, positions=True)
    exact, fused = by_matrix(scores, value, want), kernels.measured(scores, value, want)
    assert torch.equal(fused["peak_position"], exact["peak_position"])
    assert torch.equal(fused["peak_among_position"], exact["peak_among_position"])


@pytest.mark.parametrize(("features", "per_head"), [(1, False), (19, False), (5, True)])
def test_any_number_of_features(features, per_head):
    scores, value = scores_and_value()
    want = wanted(scores, features, per_head)
    exact, fused = by_matrix(scores, value, want), kernels.measured(scores, value, want)
    torch.testing.assert_close(fused["average"].double(), exact["average"], rtol=1e-5, atol=1e-6)


def test_only_what_is_wanted_is_there():
    scores, value = scores_and_value()
    fused = kernels.measured(scores, value, Wanted(entropy=True))
    assert [name for name in vars(fused) if getattr(fused, name) is not None] == ["entropy"]


def test_memory_may_lie_in_any_order():
    scores, value = scores_and_value(dim=16, width=16)
    turned = lambda tensor: tensor.transpose(1, 2).contiguous().transpose(1, 2)  # noqa: E731
    other = replace(scores, query=turned(scores.query), key=scores.key.mT.contiguous().mT)
    want = wanted(scores)
    one, two = kernels.measured(scores, value, want), kernels.measured(other, turned(value), want)
    for statistic in STATISTICS:
        torch.testing.assert_close(one[statistic], two[statistic], rtol=1e-6, atol=1e-7)


def test_what_the_kernels_do_not_take_is_named():
    scores, value = scores_and_value()
    block = Wanted(block=lambda weights, texts, rows: None)
    assert kernels.refusal(scores, value, block) == "blocks of weights are asked for"
    wide, wide_value = scores_and_value(dim=300)
    assert "300" in kernels.refusal(wide, wide_value, wanted(wide))
    double = replace(scores, query=scores.query.double(), key=scores.key.double())
    assert "float64" in kernels.refusal(double, value, wanted(scores))


def test_a_row_with_nan_is_not_a_row_that_sees_nothing():
    scores, value = scores_and_value(allowed="blank rows")
    scores.query[0, 0, 3] = torch.nan
    fused = kernels.measured(scores, value, wanted(scores))
    assert fused["entropy"][0, 0, 3].isnan()
    assert fused["peak"][0, 0, 3].isnan()
    assert fused["received"][0, 0].isnan().all()
    assert not fused["entropy"][0, 0, :3].isnan().any()
    assert (fused["entropy"][:, :, 1] == 0).all()


def test_where_a_block_does_not_fit_the_sweep_is_used(monkeypatch):
    scores, value = scores_and_value()

    def too_large(*_):
        raise kernels.TooLarge(300_000, 200_000, "shared memory")

    call = Call(Site("encoder", "self", 0), scores, value)
    monkeypatch.setattr(call, "kernels", lambda wanted: kernels)
    monkeypatch.setattr(kernels, "measured", too_large)
    entropy = call.measure(Wanted(entropy=True))["entropy"]
    torch.testing.assert_close(
        entropy.double(), by_matrix(scores, value, wanted(scores))["entropy"], rtol=1e-5, atol=1e-5
    )
    assert call.paths == {"the sweep"}


BANDS = {"causal": Band(causal=True), "causal window": Band(causal=True, window=4), "window": Band(window=3)}


@pytest.mark.parametrize(("side", "keys", "softcap"), [("none", 45, 3.0), ("left", 37, None), ("right", 45, None)])
@pytest.mark.parametrize("name", BANDS)
def test_bands_with_padding_and_grouped_keys(name, side, keys, softcap):
    """Windows far smaller than a text of several blocks, so that whole blocks of keys lie outside them."""
    scores, value = scores_and_value(queries=37, keys=keys, softcap=softcap)
    padding = torch.ones(2, 1, 1, keys, dtype=torch.bool, device=DEVICE)
    padding[1, ..., :20] = side != "left"
    padding[1, ..., -20:] = side != "right"
    mask = BandMask((2, 1, 37, keys), None if side == "none" else padding, BANDS[name], DEVICE)
    scores, value = replace(scores, allowed=mask, key=scores.key[:, :1]), value[:, :1]
    want = wanted(scores, positions=True)
    written_out = replace(scores, allowed=mask.whole, key=scores.key.repeat_interleave(2, 1))
    exact = by_matrix(written_out, value.repeat_interleave(2, 1), want)
    mine = kernels.measured(scores, value, want)
    for statistic in (*STATISTICS, "context"):
        torch.testing.assert_close(mine[statistic].double(), exact[statistic], rtol=1e-5, atol=1e-5, msg=statistic)
    real = exact["peak"] > 0
    assert torch.equal(mine["peak_position"][real], exact["peak_position"][real])
    assert mask.intact
