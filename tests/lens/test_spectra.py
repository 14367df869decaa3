"""Eigenvalues of many matrices at once against LAPACK's: on a GPU, or in Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
from lorgnette.lens.geometry import spectra

ON_A_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_A_GPU else "cpu"


def made(count, size, rank, seed=0):
    make = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, size, rank, dtype=torch.float64, generator=make)
    return vectors @ vectors.mT


def close(matrices, factor=1.0):
    """Within rounding of the largest: n times the last digit is what LAPACK promises too."""
    known = torch.linalg.eigvalsh(matrices)
    found = spectra.eigenvalues(matrices.to(DEVICE) * factor).cpu() / factor
    assert found.shape == known.shape
    largest = known.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    assert float(((found - known) / largest).abs().max()) < 4e-16 * (matrices.shape[-1] + 4)
    assert (found.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("size", [1, 2, 9, *[8, 64, 65, 150, 768] * ON_A_GPU])
def test_sizes(size):
    close(made(1 + ON_A_GPU, size, size + 3))


def test_fewer_vectors_than_dimensions():
    """Most eigenvalues are zero, and stay at what rounding leaves."""
    close(made(2, 200 if ON_A_GPU else 6, 3))


def test_no_variance_equal_variances_and_signs():
    size = 140 if ON_A_GPU else 4
    turned = made(1, size, size)[0]
    matrices = torch.stack([torch.zeros(size, size), torch.eye(size), -turned, torch.ones(size, size)]).double()
    matrices[0, 0, 0] = 3.0
    close(matrices)
    assert (spectra.eigenvalues(torch.zeros(1, size, size, dtype=torch.float64, device=DEVICE)) == 0).all()


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_scale(factor):
    """Squares of such numbers would not be numbers any more."""
    close(made(1, 4, 9), factor)


def test_none_and_not_a_number():
    assert spectra.eigenvalues(torch.zeros(0, 3, 3, dtype=torch.float64, device=DEVICE)).shape == (0, 3)
    broken = made(2, 3, 9)
    broken[0, 1, 2] = broken[0, 2, 1] = torch.nan
    found = spectra.eigenvalues(broken.to(DEVICE)).cpu()
    assert found[0].isnan().all()
    torch.testing.assert_close(found[1], torch.linalg.eigvalsh(broken[1]))
