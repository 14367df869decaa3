"""Eigenvalues of many symmetric matrices at once on a GPU, in Triton.

A GPU's library brings one matrix after the other to tridiagonal form, step by step, and most of the GPU waits. Here one
launch takes one step of all of them. This module imports Triton: import it only where there is a GPU.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending.kernels import INTERPRETED

HALVINGS = 64
"""Of an interval that is at most 4 n wide where the matrix has entries up to 1: its rest is below rounding."""


@triton.jit(do_not_specialize=["k", "first"])
@no_type_check
def _reflected(A, V, P, B, D, E, n, k, first, NP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """One Householder step of each matrix (Golub & Van Loan 2013, §8.3.1), for some rows of it.

    A ← A − v wᵀ − w vᵀ with v and w of the step before; of row k of that, d, e and the next v; and p = A v, of which
    the next step makes w = β p − (β²/2)(pᵀ v) v. V, P and B have room for two steps: this one and the one before.
    """
    block, m = first + tl.program_id(0), tl.program_id(1).to(tl.int64)
    A += m * n * n
    before, now = ((k + 1) % 2) * n, (k % 2) * n
    V += m * 2 * n
    P += m * 2 * n
    B += m * 2
    places = tl.arange(0, NP)
    inside = places < n
    beta = tl.load(B + (k + 1) % 2)
    v = tl.load(V + before + places, mask=inside, other=0.0)
    p = tl.load(P + before + places, mask=inside, other=0.0)
    half = beta * beta * 0.5 * tl.sum(p * v, 0)
    v_k = tl.load(V + before + k)
    w_k = beta * tl.load(P + before + k) - half * v_k
    row = tl.load(A + k * n + places, mask=inside, other=0.0)
    row = row - v_k * (beta * p - half * v) - w_k * v
    x = tl.where(inside & (places > k), row, 0.0)
    squares = tl.sum(x * x, 0)
    lead = tl.sum(tl.where(places == k + 1, x, 0.0), 0)
    length = tl.sqrt(squares)
    sign = tl.where(lead < 0, -1.0, 1.0)
    whole = length * (length + tl.abs(lead))
    new_beta = tl.where(whole > 0, 1.0 / tl.where(whole > 0, whole, 1.0), 0.0)
    if tl.program_id(0) == 0:
        tl.store(V + now + places, tl.where(places == k + 1, x + sign * length, x), mask=inside)
        tl.store(B + k % 2, new_beta)
        tl.store(D + m * n + k, tl.sum(tl.where(places == k, row, 0.0), 0))
        tl.store(E + m * n + k, squares)
    rows = block * BR + tl.arange(0, BR)
    mine = (rows < n) & (rows > k)
    v_r = tl.load(V + before + rows, mask=mine, other=0.0)
    w_r = beta * tl.load(P + before + rows, mask=mine, other=0.0) - half * v_r
    product = tl.zeros([BR], tl.float64)
    for start in range(((k + 1) // BC) * BC, n, BC):
        columns = start + tl.arange(0, BC)
        real = columns < n
        v_c = tl.load(V + before + columns, mask=real, other=0.0)
        w_c = beta * tl.load(P + before + columns, mask=real, other=0.0) - half * v_c
        at = A + rows[:, None] * n + columns[None, :]
        tile = tl.load(at, mask=mine[:, None] & real[None, :], other=0.0)
        tile = tile - v_r[:, None] * w_c[None, :] - w_r[:, None] * v_c[None, :]
        tl.store(at, tile, mask=mine[:, None] & real[None, :])
        x_c = tl.load(A + k * n + columns, mask=real, other=0.0) - v_k * w_c - w_k * v_c
        x_c = tl.where(real & (columns > k), x_c, 0.0)
        x_c = tl.where(columns == k + 1, x_c + sign * length, x_c)
        product += tl.sum(tile * x_c[None, :], 1)
    tl.store(P + now + rows, product, mask=mine)


@triton.jit
@no_type_check
def _bisected(D, E, OUT, LOW, HIGH, n, HALVINGS: tl.constexpr, BE: tl.constexpr):
    """Eigenvalues of tridiagonal matrices, by how many lie below a number (Golub & Van Loan 2013, §8.4.1).

    `E` has the squares of what stands beside the diagonal.
    """
    m = tl.program_id(1).to(tl.int64)
    D += m * n
    E += m * n
    number = tl.program_id(0) * BE + tl.arange(0, BE)
    low, high = tl.zeros([BE], tl.float64) + tl.load(LOW + m), tl.zeros([BE], tl.float64) + tl.load(HIGH + m)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = tl.zeros([BE], tl.int32)
        pivot = tl.zeros([BE], tl.float64) + 1.0
        square = tl.zeros([BE], tl.float64)
        for i in range(n):
            pivot = tl.load(D + i) - middle - square / pivot
            pivot = tl.where(tl.abs(pivot) < 1e-290, -1e-290, pivot)
            below += (pivot < 0).to(tl.int32)
            square = tl.zeros([BE], tl.float64) + tl.load(E + i)
        less = below <= number
        low, high = tl.where(less, middle, low), tl.where(less, high, middle)
    tl.store(OUT + m * n + number, 0.5 * (low + high), mask=number < n)


def eigenvalues(matrices: Float[Tensor, "matrix dim dim"]) -> Float[Tensor, "matrix dim"]:
    """Of symmetric matrices in float64, ascending."""
    count, n = matrices.shape[:2]
    if not count or not n:
        return matrices.new_zeros(count, n)
    scale = matrices.abs().amax((1, 2))
    scale = torch.where(scale > 0, scale, 1.0)
    work = (matrices / scale[:, None, None]).contiguous()
    vectors, products = work.new_zeros(2, count, 2, n)
    factors, (diagonal, beside) = work.new_zeros(count, 2), work.new_zeros(2, count, n)
    height, width = (8, 16) if INTERPRETED else (16, 64)
    for k in range(n):
        first = (k + 1) // height
        blocks = max(1, triton.cdiv(n, height) - first)
        _reflected[blocks, count](
            work, vectors, products, factors, diagonal, beside, n, k, first,
            NP=triton.next_power_of_2(n), BR=height, BC=width,
        )  # fmt: skip
    reach = beside.sqrt()
    reach[:, 1:] += reach[:, :-1].clone()
    low, high = (diagonal - reach).amin(1), (diagonal + reach).amax(1)
    out, some = torch.empty_like(diagonal), 16 if INTERPRETED else 64
    _bisected[triton.cdiv(n, some), count](diagonal, beside, out, low, high, n, HALVINGS=HALVINGS, BE=some)
    return out * scale[:, None]
