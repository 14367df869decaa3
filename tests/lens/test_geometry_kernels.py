"""Sums over clouds by the kernels against those in float64: on a GPU, or in Triton's interpreter."""

from dataclasses import fields

import pytest
import torch

from lorgnette.lens.geometry import cosine, isotropy

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
from lorgnette.lens.geometry import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EXACT = 1e-5 if DEVICE == "cuda" else 5e-5  # the interpreter cuts where a GPU rounds


def cloud(heads, dim, dtype):
    make = torch.Generator().manual_seed(heads + dim)
    vectors = torch.randn(3, heads, 21, dim, generator=make) + torch.linspace(-3, 9, dim)
    vectors[1, 0, 4] = 0.0
    mask = torch.rand(3, 21, generator=make) < 0.8
    return vectors.to(DEVICE, dtype).transpose(1, 2), mask.to(DEVICE)


def close(mine, exact, tolerance):
    assert float((mine.double() - exact).abs().max()) <= tolerance * float(exact.abs().max())


@pytest.mark.parametrize(("heads", "dim"), [(3, 20), (1, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_directions(heads, dim, dtype):
    vectors, mask = cloud(heads, dim, dtype)
    mine, exact = kernels.directions(vectors, mask), cosine.directions(vectors.double(), mask)
    for field in fields(exact):
        close(getattr(mine, field.name), getattr(exact, field.name), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_second_moments(dtype):
    vectors, mask = cloud(2, 20, dtype)
    flat = vectors.flatten(2)
    texts = torch.where(mask[..., None], flat.float(), 0.0).sum(1)
    other, half = flat + 1, torch.zeros_like(mask)
    half[0] = mask[0]
    made = [
        kernels.products(flat, mask, texts, mask.sum().double()),
        kernels.products(other, half, torch.where(half[..., None], other.float(), 0.0).sum(1), half.sum().double()),
    ]
    (lower, _), (total, of_half) = kernels.second_moments(made)
    close(of_half, other.double()[half].sum(0), 1e-6)
    exact = flat.double()[mask]
    close(total, exact.sum(0), 1e-6)
    moment, n = exact.T @ exact, torch.tensor(float(len(exact)))
    close(isotropy.mirrored(lower), moment, EXACT)
    mine = isotropy.covariance(isotropy.mirrored(lower), total, n.to(DEVICE))
    close(mine, isotropy.covariance(moment, exact.sum(0), n.to(DEVICE)), EXACT)
