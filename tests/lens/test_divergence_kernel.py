"""The kernel of divergences against sums in float64: on a GPU, or in Triton's interpreter where there is none."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
from lorgnette.gpu import divergence as kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("heads", "weights"), [(3, 100), (11, 300), (8, 64)])
def test_sums_of_the_means_of_all_pairs(heads, weights, monkeypatch):
    monkeypatch.setattr(kernels, "EACH", 128)
    make = torch.Generator().manual_seed(heads)
    halves = (torch.rand(heads, weights, generator=make).softmax(-1) / 2).to(DEVICE)
    halves[:, 0] = torch.finfo(torch.float32).tiny  # a weight of zero
    mine = kernels.sums(halves)
    mean = halves.double()[:, None] + halves.double()
    exact = (mean * mean.log2()).sum(-1).triu()
    torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-6)
    assert mine.dtype == torch.float64
