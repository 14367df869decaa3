"""The two Triton programs behind `kernels`, and the scores of one block that every program needs.

One pass over blocks of keys gives the context and the row statistics; with the log-sum-exp of each row known, a second
pass over blocks of queries gives the column sums. Scores are in base 2, s = log₂e · (scale · q kᵀ + bias). With the
running maximum m → m', l = Σ e and t = Σ e · (s − m), where e = 2^(s − m):

    l' = 2^(m−m') · l + Σ e        t' = 2^(m−m') · (t + (m − m') · l) + Σ e · (s − m')
    entropy = ln 2 · (log₂ l − t / l)        peak = 1 / l

(online softmax: Milakov & Gimelshein 2018; Dao 2023). Weights are rounded to the values' precision for the context
alone. For masses they enter the product as two numbers of that precision, whose sum is exact to 16 bits or better;
float32 is multiplied as three products of tf32, which keeps float32's precision.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def block_scores(
    dot, rows, cols, batch, head, n_rows, n_keys, scale, softcap, window,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """From q·k to scores in base 2; what a row may not see is −1e30, never −inf, so that 0 · s stays 0.

    Without softcap and bias the scores stay q·k: who subtracts from them multiplies by `unit` in the same instruction.
    """
    s = dot
    if HAS_CAP or HAS_BIAS:
        s = _bent_scores(dot, rows, cols, batch, head, n_rows, n_keys, scale, softcap,
                         BIAS, b_b, b_h, b_q, b_k, HAS_CAP, HAS_BIAS)  # fmt: skip
    if not (EVEN and not HAS_ALLOWED and not CAUSAL and not WINDOW):
        keep = cols < n_keys
        if HAS_ALLOWED == 1:  # the same for all rows: one number for each key
            keep = keep & (
                tl.load(ALLOWED + batch * a_b + head * a_h + cols.to(tl.int64) * a_k, mask=keep, other=0) != 0
            )
        if HAS_ALLOWED == 2:
            at = ALLOWED + batch * a_b + head * a_h + rows.to(tl.int64) * a_q + cols.to(tl.int64) * a_k
            keep = keep & (tl.load(at, mask=keep & (rows < n_rows), other=0) != 0)
        if CAUSAL:
            keep = keep & (cols <= rows + (n_keys - n_rows))
        if WINDOW:
            keep = keep & (cols >= rows + (n_keys - n_rows) - window)
            if not CAUSAL:
                keep = keep & (cols <= rows + (n_keys - n_rows) + window)
        s = tl.where(keep, s, -1e30)
    return s


@triton.jit
@no_type_check
def key_seen(ALLOWED, base, a_k, cols, n_keys):
    """Whether any row may see each key, where all rows see the same: what comes of the others is not looked at."""
    return tl.load(ALLOWED + base + cols.to(tl.int64) * a_k, mask=cols < n_keys, other=0) != 0


@triton.jit
@no_type_check
def band_limits(begin, end, ahead, behind, total, STEP: tl.constexpr, AHEAD: tl.constexpr, BEHIND: tl.constexpr):
    """Where a loop over blocks of STEP starts and stops that must reach from begin − behind to end + ahead."""
    first, last = 0, total
    if BEHIND:
        first = tl.maximum(0, begin - behind) // STEP * STEP
    if AHEAD:
        last = tl.minimum(total, end + ahead)
    return first, last


@triton.jit
@no_type_check
def not_below(values, least):
    """The maximum of both; NaN stays NaN, which a GPU's usual maximum drops."""
    return tl.maximum(values, least, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
@no_type_check
def unit(scale, HAS_CAP: tl.constexpr, HAS_BIAS: tl.constexpr):
    """What the scores of a block are multiplied by to be in base 2."""
    out = 1.0
    if not (HAS_CAP or HAS_BIAS):
        out = scale * 1.4426950408889634
    return out


@triton.jit
@no_type_check
def _bent_scores(
    dot, rows, cols, batch, head, n_rows, n_keys, scale, softcap, BIAS, b_b, b_h, b_q, b_k,
    HAS_CAP: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """The same for scores with a softcap or a bias."""
    s = dot * scale
    if HAS_CAP:
        u = tl.exp2(-2.8853900817779268 * tl.abs(s / softcap))  # tanh |x| = (1 − e^(−2|x|)) / (1 + e^(−2|x|))
        bent = (1.0 - u) / (1.0 + u)
        s = softcap * tl.where(s < 0, -bent, bent)
    if HAS_BIAS:
        at = BIAS + batch * b_b + head * b_h + rows.to(tl.int64) * b_q + cols.to(tl.int64) * b_k
        s += tl.load(at, mask=(cols < n_keys) & (rows < n_rows), other=0.0).to(tl.float32)
    return not_below(s * 1.4426950408889634, -1e30)


@triton.jit
@no_type_check
def row_statistics(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, V, v_b, v_h, v_n,
    PHI, p_b, p_h, p_n, p_f, AMONG, OFFSETS,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    OUT, o_b, o_h, o_n, LSE, ENT, PEAK, PEAK_AT, PEAKA, PEAKA_AT, MASS, AT,
    scale, softcap, window, H, N, M, D, E, F,
    DP: tl.constexpr, EP: tl.constexpr, FP: tl.constexpr, OFF: tl.constexpr,
    CONTEXT: tl.constexpr, ENTROPY: tl.constexpr, FEAT: tl.constexpr, HAS_AMONG: tl.constexpr, WHERE: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, EVEN: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    SPLIT: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = (bh // H).to(tl.int64), (bh % H).to(tl.int64)
    group = h // R  # whose keys and values it shares
    rows, dims, wide, feats = block * BM + tl.arange(0, BM), tl.arange(0, DP), tl.arange(0, EP), tl.arange(0, FP)
    real = rows < N
    q = tl.load(Q + b * q_b + h * q_h + rows[:, None].to(tl.int64) * q_n + dims[None, :],
                mask=real[:, None] & (dims[None, :] < D), other=0.0)  # fmt: skip
    m, total, t = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    at_m, ma, at_ma = tl.zeros([BM], tl.int32), tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.int32)
    acc, mass = tl.zeros([BM, EP], tl.float32), tl.zeros([BM, FP], tl.float32)
    begin = block * BM + (M - N)  # the position of the first row
    first, last = band_limits(begin, begin + BM, 0 if CAUSAL else window, window, M, BN, CAUSAL or WINDOW, WINDOW)
    c = unit(scale, HAS_CAP, HAS_BIAS)
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        inside = cols < M
        k = tl.load(K + b * k_b + group * k_h + cols[None, :].to(tl.int64) * k_n + dims[:, None],
                    mask=inside[None, :] & (dims[:, None] < D), other=0.0)  # fmt: skip
        s = block_scores(
            tl.dot(q, k, input_precision=PRECISION), rows[:, None], cols[None, :], b, h, N, M, scale, softcap, window,
            ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
            HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, WINDOW, EVEN,
        )  # fmt: skip
        if WHERE:
            top, place = tl.max(s, 1, return_indices=True)
            at_m = tl.where(top > m, start + place, at_m)
        else:
            top = tl.max(s, 1)
        m_new = tl.maximum(m, top)
        if EVEN and not HAS_ALLOWED and not CAUSAL and not WINDOW:
            d = s * c - (m_new * c)[:, None]  # one instruction
        else:  # −1e30 · c is not exact, and one instruction would not round it: where all is hidden, d must be 0
            d = (s - m_new[:, None]) * c
        p = tl.exp2(d)
        shift = (m - m_new) * c
        alpha = tl.exp2(shift)
        if ENTROPY:
            t = alpha * (t + shift * total) + tl.sum(p * d, 1)
        total = total * alpha + tl.sum(p, 1)
        if CONTEXT:
            v = tl.load(V + b * v_b + group * v_h + cols[:, None].to(tl.int64) * v_n + wide[None, :],
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
    some = (m > -1e29) | (total != total)  # a row that may see nothing gets zeros, one with NaN gets NaN
    share = tl.where(some, 1.0 / total, 0.0)
    log_l = tl.log2(total)
    lse = m * c + log_l
    r = bh.to(tl.int64) * N + rows
    tl.store(LSE + r, tl.where(some, lse, 1e30), mask=real)
    tl.store(PEAK + r, share, mask=real)
    if ENTROPY:
        entropy = not_below(0.6931471805599453 * (log_l - t * share), 0.0)
        tl.store(ENT + r, tl.where(some, entropy, 0.0), mask=real)
    if WHERE:
        tl.store(PEAK_AT + r, at_m.to(tl.int64), mask=real)
    if CONTEXT:
        tl.store(OUT + b * o_b + h * o_h + rows[:, None].to(tl.int64) * o_n + wide[None, :],
                 (acc * share[:, None]).to(OUT.dtype.element_ty),
                 mask=real[:, None] & (wide[None, :] < E))  # fmt: skip
    if FEAT:
        tl.store(MASS + r[:, None] * F + feats[None, :], mass * share[:, None],
                 mask=real[:, None] & (feats[None, :] < F))  # fmt: skip
    if HAS_AMONG:
        tl.store(PEAKA + r, tl.where(ma > -1e29, tl.exp2((ma - m) * c) * share, 0.0), mask=real)
        if WHERE:
            tl.store(PEAKA_AT + r, at_ma.to(tl.int64), mask=real)
    for number in tl.static_range(OFF):
        cols = rows + tl.load(OFFSETS + number)
        valid = real & (cols >= 0) & (cols < M)
        cols = tl.where(valid, cols, 0)  # nothing is read from before the first key
        k = tl.load(K + b * k_b + group * k_h + cols[:, None].to(tl.int64) * k_n + dims[None, :],
                    mask=valid[:, None] & (dims[None, :] < D), other=0.0)  # fmt: skip
        s = block_scores(
            tl.sum(q.to(tl.float32) * k.to(tl.float32), 1), rows, cols, b, h, N, M, scale, softcap, window,
            ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
            HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, WINDOW, EVEN,
        )  # fmt: skip
        visible = valid & some & (s > -1e29)
        tl.store(AT + r * OFF + number, tl.where(visible, tl.exp2(s * c - lse), 0.0), mask=real)


@triton.jit
@no_type_check
def column_sums(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, LSE, W, OUT,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    scale, softcap, window, H, N, M, D, DP: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, EVEN: tl.constexpr, KEYS: tl.constexpr, R: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = (bh // H).to(tl.int64), (bh % H).to(tl.int64)
    group = h // R  # whose keys and values it shares
    cols, dims = block * BM + tl.arange(0, BM), tl.arange(0, DP)
    k = tl.load(K + b * k_b + group * k_h + cols[:, None].to(tl.int64) * k_n + dims[None, :],
                mask=(cols[:, None] < M) & (dims[None, :] < D), other=0.0)  # fmt: skip
    out, c = tl.zeros([BM], tl.float32), unit(scale, HAS_CAP, HAS_BIAS)
    begin = block * BM - (M - N)  # the row at the first key
    first, last = band_limits(begin, begin + BM, window, 0 if CAUSAL else window, N, BN, WINDOW, CAUSAL or WINDOW)
    for start in range(first, last, BN):
        rows = start + tl.arange(0, BN)
        inside = rows < N
        q = tl.load(Q + b * q_b + h * q_h + rows[None, :].to(tl.int64) * q_n + dims[:, None],
                    mask=inside[None, :] & (dims[:, None] < D), other=0.0)  # fmt: skip
        lse = tl.load(LSE + bh.to(tl.int64) * N + rows, mask=inside, other=1e30)
        w = tl.load(W + b * N + rows, mask=inside, other=0.0)
        s = block_scores(
            tl.dot(k, q, input_precision=PRECISION), rows[None, :], cols[:, None], b, h, N, M, scale, softcap, window,
            ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
            HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, WINDOW, EVEN,
        )  # fmt: skip
        out += tl.sum(tl.exp2(s * c - lse[None, :]) * w[None, :], 1)
    if KEYS:
        out = tl.where(key_seen(ALLOWED, b * a_b + h * a_h, a_k, cols, M), out, 0.0)
    tl.store(OUT + bh.to(tl.int64) * M + cols, out, mask=cols < M)
