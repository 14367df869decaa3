"""The statistics of the sweep, fused into two Triton kernels for a GPU; the sweep stays the fallback and the oracle.

One pass over blocks of keys gives the context and the row statistics; with the log-sum-exp of each row known, a second
pass over blocks of queries gives the column sums. Scores are in base 2, s = log₂e · (scale · q kᵀ + bias). With the
running maximum m → m', l = Σ e and t = Σ e · (s − m), where e = 2^(s − m):

    l' = 2^(m−m') · l + Σ e        t' = 2^(m−m') · (t + (m − m') · l) + Σ e · (s − m')
    entropy = ln 2 · (log₂ l − t / l)        peak = 1 / l

(online softmax: Milakov & Gimelshein 2018; Dao 2023). Weights are rounded to the values' precision for the context
alone. For masses they enter the product as two numbers of that precision, whose sum is exact to 16 bits or better;
float32 is multiplied as three products of tf32, which keeps float32's precision.

This module imports Triton: import it only where there is a GPU (`sweep.fused` does).
"""

import os
from functools import lru_cache
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lorgnette.attending.scores import Scores
from lorgnette.attending.sweep import Measured, Wanted, per_head

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST = 256
"""The largest head size that fits on the chip."""
FEATURES = 16
"""Columns of masses that one pass takes; more take a pass for every 16."""


def refusal(scores: Scores, value: Tensor, wanted: Wanted) -> str | None:
    """Why the kernels do not take this call, in a few words; None if they do."""
    dims = scores.query.shape[-1], value.shape[-1]
    if not (scores.query.is_cuda or INTERPRETED):
        return "not on a GPU"
    if scores.query.dtype not in DTYPES:
        return f"no kernel for {scores.query.dtype}"
    if max(dims) > WIDEST:
        return f"a head size of {max(dims)} is over {WIDEST}"
    if scores.query.dtype != torch.float32 and any(dim % 16 for dim in dims) and not INTERPRETED:
        return f"head sizes of {dims[0]} and {dims[1]} in half precision are no multiples of 16"
    if wanted.block is not None:
        return "blocks of weights are asked for"
    if getattr(scores, "sink", None) is not None:
        return "a learnt sink"
    if not INTERPRETED and torch.cuda.get_device_capability(scores.query.device)[0] < 8:
        return "a GPU older than Ampere"
    return None


@triton.jit
@no_type_check
def _block_scores(
    dot, rows, cols, batch, head, n_rows, n_keys, scale, softcap,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """From q·k to scores in base 2; what a row may not see is −1e30, never −inf, so that 0 · s stays 0."""
    if not (HAS_CAP or HAS_BIAS):
        s = dot * (scale * 1.4426950408889634)
    else:
        s = _bent_scores(dot, rows, cols, batch, head, n_rows, n_keys, scale, softcap,
                         BIAS, b_b, b_h, b_q, b_k, HAS_CAP, HAS_BIAS)  # fmt: skip
    if not (EVEN and not HAS_ALLOWED and not CAUSAL):
        keep = cols < n_keys
        if HAS_ALLOWED:
            at = ALLOWED + batch * a_b + head * a_h + rows.to(tl.int64) * a_q + cols.to(tl.int64) * a_k
            keep = keep & (tl.load(at, mask=keep & (rows < n_rows), other=0) != 0)
        if CAUSAL:
            keep = keep & (cols <= rows + (n_keys - n_rows))
        s = tl.where(keep, s, -1e30)
    return s


@triton.jit
@no_type_check
def _bent_scores(
    dot, rows, cols, batch, head, n_rows, n_keys, scale, softcap, BIAS, b_b, b_h, b_q, b_k,
    HAS_CAP: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """The same where a softcap bends the scores, or a bias is added."""
    s = dot * scale
    if HAS_CAP:
        u = tl.exp2(-2.8853900817779268 * tl.abs(s / softcap))  # tanh |x| = (1 − e^(−2|x|)) / (1 + e^(−2|x|))
        bent = (1.0 - u) / (1.0 + u)
        s = softcap * tl.where(s < 0, -bent, bent)
    if HAS_BIAS:
        at = BIAS + batch * b_b + head * b_h + rows.to(tl.int64) * b_q + cols.to(tl.int64) * b_k
        s += tl.load(at, mask=(cols < n_keys) & (rows < n_rows), other=0.0).to(tl.float32)
    return tl.maximum(s * 1.4426950408889634, -1e30)


@triton.jit
@no_type_check
def _rows(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, V, v_b, v_h, v_n,
    PHI, p_b, p_h, p_n, p_f, AMONG, OFFSETS,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    OUT, LSE, ENT, PEAK, PEAK_AT, PEAKA, PEAKA_AT, MASS, AT,
    scale, softcap, H, N, M, D, E, F,
    DP: tl.constexpr, EP: tl.constexpr, FP: tl.constexpr, OFF: tl.constexpr,
    CONTEXT: tl.constexpr, ENTROPY: tl.constexpr, FEAT: tl.constexpr, HAS_AMONG: tl.constexpr, WHERE: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr, SPLIT: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = (bh // H).to(tl.int64), (bh % H).to(tl.int64)
    rows, dims, wide, feats = block * BM + tl.arange(0, BM), tl.arange(0, DP), tl.arange(0, EP), tl.arange(0, FP)
    real = rows < N
    q = tl.load(Q + b * q_b + h * q_h + rows[:, None].to(tl.int64) * q_n + dims[None, :],
                mask=real[:, None] & (dims[None, :] < D), other=0.0)  # fmt: skip
    m, total, t = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    at_m, ma, at_ma = tl.zeros([BM], tl.int32), tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.int32)
    acc, mass = tl.zeros([BM, EP], tl.float32), tl.zeros([BM, FP], tl.float32)
    last = tl.minimum(M, (block + 1) * BM + (M - N)) if CAUSAL else M
    for start in range(0, last, BN):
        cols = start + tl.arange(0, BN)
        inside = cols < M
        k = tl.load(K + b * k_b + h * k_h + cols[None, :].to(tl.int64) * k_n + dims[:, None],
                    mask=inside[None, :] & (dims[:, None] < D), other=0.0)  # fmt: skip
        s = _block_scores(
            tl.dot(q, k, input_precision=PRECISION), rows[:, None], cols[None, :], b, h, N, M, scale, softcap,
            ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k, HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, EVEN,
        )  # fmt: skip
        if WHERE:
            top, place = tl.max(s, 1, return_indices=True)
            at_m = tl.where(top > m, start + place, at_m)
        else:
            top = tl.max(s, 1)
        m_new = tl.maximum(m, top)
        d = s - m_new[:, None]
        p = tl.exp2(d)
        shift = m - m_new
        alpha = tl.exp2(shift)
        if ENTROPY:
            t = alpha * (t + shift * total) + tl.sum(p * d, 1)
        total = total * alpha + tl.sum(p, 1)
        if CONTEXT:
            v = tl.load(V + b * v_b + h * v_h + cols[:, None].to(tl.int64) * v_n + wide[None, :],
                        mask=inside[:, None] & (wide[None, :] < E), other=0.0)  # fmt: skip
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
        if FEAT:
            phi = tl.load(PHI + b * p_b + h * p_h + cols[:, None].to(tl.int64) * p_n + feats[None, :] * p_f,
                          mask=inside[:, None] & (feats[None, :] < F), other=0.0)  # fmt: skip
            mass = mass * alpha[:, None]
            if SPLIT:
                high, columns = p.to(k.dtype), phi.to(k.dtype)
                mass = tl.dot(high, columns, mass)
                mass = tl.dot((p - high.to(tl.float32)).to(k.dtype), columns, mass)
                if WIDE:
                    mass = tl.dot(high, (phi - columns.to(tl.float32)).to(k.dtype), mass)
            else:
                mass = tl.dot(p, phi.to(tl.float32), mass, input_precision="tf32x3")
        if HAS_AMONG:
            chosen = tl.load(AMONG + b * M + cols, mask=inside, other=0)
            sa = tl.where((chosen != 0)[None, :], s, -1e30)
            if WHERE:
                topa, placea = tl.max(sa, 1, return_indices=True)
                at_ma = tl.where(topa > ma, start + placea, at_ma)
            else:
                topa = tl.max(sa, 1)
            ma = tl.maximum(ma, topa)
        m = m_new
    some = m > -1e29  # a row that may see nothing gets zeros
    share = tl.where(some, 1.0 / total, 0.0)
    log_l = tl.log2(total)
    lse = m + log_l
    r = bh.to(tl.int64) * N + rows
    tl.store(LSE + r, tl.where(some, lse, 1e30), mask=real)
    tl.store(PEAK + r, share, mask=real)
    if ENTROPY:
        tl.store(ENT + r, tl.where(some, tl.maximum(0.6931471805599453 * (log_l - t * share), 0.0), 0.0), mask=real)
    if WHERE:
        tl.store(PEAK_AT + r, at_m.to(tl.int64), mask=real)
    if CONTEXT:
        tl.store(OUT + r[:, None] * E + wide[None, :], (acc * share[:, None]).to(OUT.dtype.element_ty),
                 mask=real[:, None] & (wide[None, :] < E))  # fmt: skip
    if FEAT:
        tl.store(MASS + r[:, None] * F + feats[None, :], mass * share[:, None],
                 mask=real[:, None] & (feats[None, :] < F))  # fmt: skip
    if HAS_AMONG:
        tl.store(PEAKA + r, tl.where(ma > -1e29, tl.exp2(ma - m) * share, 0.0), mask=real)
        if WHERE:
            tl.store(PEAKA_AT + r, at_ma.to(tl.int64), mask=real)
    for number in tl.static_range(OFF):
        cols = rows + tl.load(OFFSETS + number)
        there = real & (cols >= 0) & (cols < M)
        k = tl.load(K + b * k_b + h * k_h + cols[:, None].to(tl.int64) * k_n + dims[None, :],
                    mask=there[:, None] & (dims[None, :] < D), other=0.0)  # fmt: skip
        s = _block_scores(
            tl.sum(q.to(tl.float32) * k.to(tl.float32), 1), rows, cols, b, h, N, M, scale, softcap,
            ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k, HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, EVEN,
        )  # fmt: skip
        seen = there & some & (s > -1e29)
        tl.store(AT + r * OFF + number, tl.where(seen, tl.exp2(s - lse), 0.0), mask=real)


@triton.jit
@no_type_check
def _columns(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, LSE, W, OUT,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    scale, softcap, H, N, M, D, DP: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = (bh // H).to(tl.int64), (bh % H).to(tl.int64)
    cols, dims = block * BM + tl.arange(0, BM), tl.arange(0, DP)
    k = tl.load(K + b * k_b + h * k_h + cols[:, None].to(tl.int64) * k_n + dims[None, :],
                mask=(cols[:, None] < M) & (dims[None, :] < D), other=0.0)  # fmt: skip
    out = tl.zeros([BM], tl.float32)
    first = tl.maximum(0, (block * BM - (M - N)) // BN * BN) if CAUSAL else 0
    for start in range(first, N, BN):
        rows = start + tl.arange(0, BN)
        inside = rows < N
        q = tl.load(Q + b * q_b + h * q_h + rows[None, :].to(tl.int64) * q_n + dims[:, None],
                    mask=inside[None, :] & (dims[:, None] < D), other=0.0)  # fmt: skip
        lse = tl.load(LSE + bh.to(tl.int64) * N + rows, mask=inside, other=1e30)
        w = tl.load(W + b * N + rows, mask=inside, other=0.0)
        s = _block_scores(
            tl.dot(k, q, input_precision=PRECISION), rows[None, :], cols[:, None], b, h, N, M, scale, softcap,
            ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k, HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, EVEN,
        )  # fmt: skip
        out += tl.sum(tl.exp2(s - lse[None, :]) * w[None, :], 1)
    tl.store(OUT + bh.to(tl.int64) * M + cols, out, mask=cols < M)


def measured(scores: Scores, value: Tensor, wanted: Wanted) -> Measured:
    """What the sweep gives, from the kernels; `refusal` must have said None."""
    batch, heads, queries, keys = scores.shape
    call = Launch(scores)
    new = scores.query.new_empty
    row = lambda dtype=torch.float32: new(batch, heads, queries, dtype=dtype)  # noqa: E731
    out = Measured(
        entropy=row() if wanted.entropy else None,
        peak=row(),
        peak_position=row(torch.int64) if wanted.peak and wanted.positions else None,
        peak_among=row() if wanted.among is not None else None,
        peak_among_position=row(torch.int64) if wanted.among is not None and wanted.positions else None,
        at=new(batch, heads, queries, len(wanted.offsets), dtype=torch.float32) if wanted.offsets else None,
        context=new(batch, heads, queries, value.shape[-1]) if wanted.context else None,
    )
    log_sum = row()
    out.log_sum = log_sum if wanted.log_sum else None
    features = None if wanted.features is None else per_head(wanted.features).expand(batch, heads, keys, -1)
    if features is not None and features.dtype == torch.bool:
        features = features.to(scores.query.dtype)
    parts = [None] if features is None else list(features.split(FEATURES, dim=-1))
    masses = [call.rows(value, wanted, out, log_sum, parts[0])]
    for part in parts[1:]:
        masses.append(call.rows(value, Wanted(features=part), Measured(peak=row()), row(), part))
    if features is not None:
        out.average = torch.cat([mass for mass in masses if mass is not None], dim=-1)
    if wanted.received is not None:
        several = wanted.received.dim() == 3
        each = [call.columns(one, log_sum) for one in (wanted.received.unbind(-1) if several else (wanted.received,))]
        out.received = torch.stack(each, -1) if several else each[0]
    if not wanted.peak:
        out.peak = None
    return out


class Launch:
    """The arguments that both kernels share."""

    query: Tensor
    key: Tensor
    batch: int
    heads: int
    queries: int
    keys: int

    def __init__(self, scores: Scores) -> None:
        self.scores: Scores = scores
        self.query, self.key = _rows_together(scores.query), _rows_together(scores.key)
        self.batch, self.heads, self.queries, self.keys = scores.shape
        self.dim: int = scores.query.shape[-1]
        full = scores.shape
        self.allowed: Tensor | None = None if scores.allowed is None else scores.allowed.expand(full).view(torch.uint8)
        self.bias: Tensor | None = None if scores.bias is None else scores.bias.expand(full)
        self.precision = "tf32x3" if scores.query.dtype == torch.float32 else "ieee"
        nothing = self.query
        masks = [(tensor if tensor is not None else nothing) for tensor in (self.allowed, self.bias)]
        self.masks = [argument for mask in masks for argument in (mask, *mask.stride())]
        self.flags = {
            "HAS_CAP": scores.softcap is not None,
            "HAS_ALLOWED": self.allowed is not None,
            "HAS_BIAS": self.bias is not None,
            "CAUSAL": scores.causal,
            "PRECISION": self.precision,
        }
        self.limits = (float(scores.scale), float(scores.softcap or 1.0))

    def rows(
        self, value: Tensor, wanted: Wanted, out: Measured, log_sum: Tensor, features: Tensor | None
    ) -> Tensor | None:
        """Run the first kernel into `out` and `log_sum`; gives the masses of these features."""
        nothing = log_sum
        given = lambda tensor: nothing if tensor is None else tensor  # noqa: E731
        value = _rows_together(value)
        columns = 0 if features is None else features.shape[-1]
        mass = None if features is None else log_sum.new_empty(*log_sum.shape, columns)
        phi = features if features is not None else self.query
        among = None if wanted.among is None else wanted.among.contiguous().view(torch.uint8)
        offsets = _offsets(wanted.offsets or (0,), log_sum.device)
        width, wide = triton.next_power_of_2(max(self.dim, 16)), triton.next_power_of_2(max(value.shape[-1], 16))
        settings = _row_blocks(max(width, wide), self.query.dtype)
        # float16 has too few exponents for what is left of a float32 number.
        split = features is not None and (features.dtype == self.query.dtype or self.query.dtype == torch.bfloat16)
        split = split and self.query.dtype != torch.float32
        _rows[triton.cdiv(self.queries, settings["BM"]), self.batch * self.heads](
            self.query, *self.query.stride()[:3], self.key, *self.key.stride()[:3], value, *value.stride()[:3],
            phi, *phi.stride(), given(among), offsets, *self.masks,
            given(out.context), log_sum, given(out.entropy), out.peak, given(out.peak_position),
            given(out.peak_among), given(out.peak_among_position), given(mass), given(out.at),
            *self.limits, self.heads, self.queries, self.keys, self.dim, value.shape[-1], columns,
            DP=width, EP=wide, FP=FEATURES, OFF=len(wanted.offsets) if out.at is not None else 0,
            CONTEXT=out.context is not None, ENTROPY=out.entropy is not None, FEAT=features is not None,
            HAS_AMONG=among is not None, WHERE=wanted.positions,
            SPLIT=split, WIDE=split and features is not None and features.dtype == torch.float32,
            EVEN=self.keys % settings["BN"] == 0, **self.flags, **settings,
        )  # fmt: skip
        return mass

    def columns(self, queries: Tensor, log_sum: Tensor) -> Tensor:
        """Σ_i w_i α_ij, with the rows' log-sum-exp known."""
        out = log_sum.new_empty(self.batch, self.heads, self.keys)
        weights = queries.to(torch.float32).contiguous()
        width = triton.next_power_of_2(max(self.dim, 16))
        settings = _column_blocks(width, self.query.dtype)
        _columns[triton.cdiv(self.keys, settings["BM"]), self.batch * self.heads](
            self.query, *self.query.stride()[:3], self.key, *self.key.stride()[:3], log_sum, weights, out,
            *self.masks, *self.limits, self.heads, self.queries, self.keys, self.dim,
            DP=width, EVEN=self.keys % settings["BM"] == 0, **self.flags, **settings,
        )  # fmt: skip
        return out


@lru_cache(maxsize=64)
def _offsets(offsets: tuple[int, ...], device: torch.device) -> Tensor:
    """On the device, once: to send them waits for it."""
    return torch.tensor(offsets, dtype=torch.int32, device=device)


def _rows_together(tensor: Tensor) -> Tensor:
    """The numbers of one token must lie side by side; tokens and heads may lie anywhere."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _row_blocks(width: int, dtype: torch.dtype) -> dict[str, int]:
    """Queries and keys of one block of the first kernel; the fastest of those tried on an H200."""
    if INTERPRETED:
        return {"BM": 16, "BN": 16}
    if dtype == torch.float32:
        return {"BM": 64, "BN": 64 if width <= 64 else 32 if width <= 128 else 16, "num_warps": 4, "num_stages": 2}
    if width <= 64:
        return {"BM": 64, "BN": 128, "num_warps": 4, "num_stages": 2}
    return {"BM": 64, "BN": 64 if width <= 128 else 32, "num_warps": 4, "num_stages": 2}


def _column_blocks(width: int, dtype: torch.dtype) -> dict[str, int]:
    """Keys and queries of one block of the second kernel."""
    if INTERPRETED or dtype == torch.float32:
        return _row_blocks(width, dtype)
    return {"BM": 128, "BN": 64 if width <= 128 else 32, "num_warps": 4, "num_stages": 3 if width <= 64 else 2}


__all__ = ["INTERPRETED", "measured", "refusal"]
