"""Sums over clouds by the kernels against those in float64: on a GPU, or in Triton's interpreter."""

import numpy as np
import pytest
import torch
from tiny import examples, subject

import lorgnette as lo
from lorgnette import kernels as door
from lorgnette.lens.geometry import cosine, isotropy
from lorgnette.lens.geometry.lens import Geometry

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
from lorgnette.gpu import vectors as kernels

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


def some_clouds(count, heads, dim, dtype):
    """Clouds of one shape; those with odd numbers lie otherwise in memory."""
    vectors, mask = cloud(heads, dim, dtype)
    return [vectors + 1 if number % 2 else vectors * (number + 1) for number in range(count)], mask


@pytest.mark.parametrize(("count", "heads", "dim"), [(1, 3, 20), (3, 1, 40), (2, 3, 20)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_directions(count, heads, dim, dtype):
    clouds, mask = some_clouds(count, heads, dim, dtype)
    mine = kernels.directions(clouds, mask)
    for number, vectors in enumerate(clouds):
        exact = cosine.directions(vectors.double(), mask)
        texts = slice(number * len(mask), (number + 1) * len(mask))
        for part, known in zip([*mine.sums, *mine.counts], [*exact.sums, *exact.counts], strict=True):
            close(part[texts], known, 1e-6)


@pytest.mark.parametrize("chunk", [16, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_second_moments(dtype, chunk, monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK", chunk)
    clouds, mask = some_clouds(3, 2, 20, dtype)
    half = torch.zeros_like(mask)
    half[0] = mask[0]
    made, expected = [], []
    for some, counts in ((clouds, mask), (clouds[1:2], half)):
        flat = torch.stack(some).flatten(3).float()
        texts = torch.where(counts[..., None], flat, 0.0).sum(2)
        made.append(kernels.products(some, counts, texts, counts.sum().double()))
        expected += [one.flatten(2).double()[counts] for one in some]
    for lower, total, exact in zip(*kernels.second_moments(made), expected, strict=True):
        close(total, exact.sum(0), 1e-6)
        moment, n = exact.T @ exact, torch.tensor(float(len(exact)))
        tolerance = EXACT if dtype == torch.bfloat16 else 2e-6
        close(isotropy.mirrored(lower), moment, tolerance)
        mine = isotropy.covariance(isotropy.mirrored(lower), total, n.to(DEVICE))
        close(mine, isotropy.covariance(moment, exact.sum(0), n.to(DEVICE)), tolerance)


@pytest.mark.parametrize(("family", "specials"), [("bert", True), ("llama", "cls"), ("marian", False)])
def test_the_lens_is_the_same_without_kernels(family, specials, monkeypatch):
    """Clouds that are worked out together go to their own places: heads in groups, and attention across too."""

    def looked():
        lens, watched = Geometry(specials=specials, least=2), subject(family, dtype=torch.float32)
        watched.model.to(DEVICE)
        return lo.look(watched, examples((9, 4, 6)), [lens], progress=False)["geometry"].data

    monkeypatch.setattr(kernels, "CHUNK", 64)
    monkeypatch.setattr(kernels, "supported", lambda vectors: False)
    plain = looked()
    launched = []
    monkeypatch.setattr(door, "is_gpu", lambda device: True)
    monkeypatch.setattr(kernels, "supported", lambda vectors: launched.append(vectors) or True)
    mine = looked()
    assert launched
    assert set(mine) == set(plain)
    for name, array in plain.items():
        # There are fewer vectors than dimensions, so that ranks depend on what rounding leaves of zeros.
        exact = 1e-2 if "effective_rank" in name else 1e-3 if "isoscore" in name else 1e-5
        np.testing.assert_allclose(mine[name], array, rtol=exact, atol=1e-5, err_msg=name)


def test_eigenvalues_where_the_matrices_are():
    """Small and large ones, many and one: on a GPU each goes another way."""
    make = torch.Generator().manual_seed(0)
    shapes = ((5, 3, 7, 9), (12, 140, 150), (1, 150, 160), (0, 7, 7), (131, 140))
    vectors = [torch.randn(*shape, dtype=torch.float64, generator=make) for shape in shapes]
    found = isotropy.eigenvalues([(some @ some.mT).to(DEVICE) for some in vectors])
    for values, some in zip(found, vectors, strict=True):
        assert values.device.type == "cpu"
        torch.testing.assert_close(values, torch.linalg.svdvals(some).square().flip(-1), rtol=1e-9, atol=1e-9)
