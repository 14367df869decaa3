"""The norms of one call on a GPU: Gram matrices, norms of all heads' terms and of a token's own, in Triton.

Nothing of size queries × keys leaves the chip: a program has the weights α^h of all heads for a small block of pairs in
registers, forms αᵀ G_j α for each pair, and adds the roots up over the queries. Values of bfloat16 are exact as they
are; what multiplies them enters as two bfloat16 numbers whose sum keeps 16 bits, and sums are in float32.

This module imports Triton: `lorgnette.kernels` imports it where there is a GPU.
"""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending.scores import Scores
from lorgnette.contributions.head_weights import Projections
from lorgnette.contributions.norms import FrozenNorm
from lorgnette.gpu.attention import INTERPRETED, Launch
from lorgnette.gpu.programs import band_limits, block_scores, key_seen, not_below, unit

MOST_HEADS = 16
"""The weights of more heads do not fit into the registers of a block of pairs."""


def refusal(scores: Scores, value: Tensor) -> str | None:
    """Why these kernels do not take a call, in a few words; None if they do."""
    if scores.shape[1] > MOST_HEADS:
        return f"{scores.shape[1]} heads are over {MOST_HEADS}"
    if max(scores.query.shape[-1], value.shape[-1]) > 128:
        return "a head size over 128"
    return None


@triton.jit
@no_type_check
def _gram(
    V, v_b, v_h, v_n, M1, M2, OUT, N, D, H: tl.constexpr,
    DP: tl.constexpr, BT: tl.constexpr, SPLIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    mask = (tokens < N)[:, None] & (dims < D)[None, :]
    at = tokens[:, None].to(tl.int64) * v_n + dims[None, :]
    square = (dims < D)[:, None] & (dims < D)[None, :]
    own = tl.load(V + b * v_b + h * v_h + at, mask=mask, other=0.0)
    for g in range(h + 1):
        place = (h * D + dims[:, None]) * (H * D) + g * D + dims[None, :]
        other = tl.load(V + b * v_b + g * v_h + at, mask=mask, other=0.0).to(tl.float32)
        first = tl.load(M1 + place, mask=square, other=0.0)
        projected = tl.dot(own, first, input_precision=PRECISION)
        if SPLIT:
            projected = tl.dot(own, tl.load(M2 + place, mask=square, other=0.0), projected)
        twice = tl.where(g < h, 2.0, 1.0)
        tl.store(OUT + ((b * H + h) * H + g) * N + tokens, tl.sum(projected * other, 1) * twice, mask=tokens < N)


@triton.jit
@no_type_check
def _pair_norms(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, LSE, G1, G2, W1, W2, OUT1, OUT2,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    scale, softcap, window, N, M, D, zero, H: tl.constexpr, DP: tl.constexpr, TWO: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, EVEN: tl.constexpr, KEYS: tl.constexpr, R: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    block, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    cols, dims = block * BN + tl.arange(0, BN), tl.arange(0, DP)
    inside = cols < M
    out1, out2, c = tl.zeros([BN], tl.float32), tl.zeros([BN], tl.float32), unit(scale, HAS_CAP, HAS_BIAS)
    begin = block * BN - (M - N)  # the row at the first key
    first, last = band_limits(begin, begin + BN, window, 0 if CAUSAL else window, N, BM, WINDOW, CAUSAL or WINDOW)
    for start in range(first, last, BM):
        rows = start + tl.arange(0, BM)
        real = rows < N
        planes = ()
        for h in tl.static_range(H):
            q = tl.load(Q + b * q_b + h * q_h + rows[:, None].to(tl.int64) * q_n + dims[None, :],
                        mask=real[:, None] & (dims < D)[None, :], other=0.0)  # fmt: skip
            k = tl.load(K + b * k_b + h // R * k_h + cols[None, :].to(tl.int64) * k_n + dims[:, None],
                        mask=inside[None, :] & (dims < D)[:, None], other=0.0)  # fmt: skip
            s = block_scores(
                tl.dot(q, k, input_precision=PRECISION), rows[:, None], cols[None, :], b, h, N, M, scale, softcap,
                window, ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
                HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, WINDOW, EVEN,
            )  # fmt: skip
            lse = tl.load(LSE + (b * H + h) * N + rows, mask=real, other=1e30)
            planes = planes + (tl.exp2(s * c - lse[:, None]),)  # noqa: RUF005  Triton unpacks no tuples
        total1, total2 = tl.zeros([BM, BN], tl.float32), tl.zeros([BM, BN], tl.float32)
        for h in tl.static_range(H):
            row1, row2 = tl.zeros([BM, BN], tl.float32), tl.zeros([BM, BN], tl.float32)
            for g in tl.static_range(h + 1):
                # Not the same in every turn, as far as the compiler knows: it would keep all of it in registers.
                place = ((b * H + h) * H + g) * M + cols + start * zero
                row1 += planes[g] * tl.load(G1 + place, mask=inside, other=0.0)[None, :]
                if TWO:
                    row2 += planes[g] * tl.load(G2 + place, mask=inside, other=0.0)[None, :]
            total1 += row1 * planes[h]
            if TWO:
                total2 += row2 * planes[h]
        w1 = tl.load(W1 + b * N + rows, mask=real, other=0.0)
        out1 += tl.sum(tl.sqrt(not_below(total1, 0.0)) * w1[:, None], 0)
        if TWO:
            w2 = tl.load(W2 + b * N + rows, mask=real, other=0.0)
            out2 += tl.sum(tl.sqrt(not_below(total2, 0.0)) * w2[:, None], 0)
    if KEYS:
        seen = key_seen(ALLOWED, b * a_b, a_k, cols, M)
        out1, out2 = tl.where(seen, out1, 0.0), tl.where(seen, out2, 0.0)
    tl.store(OUT1 + b * M + cols, out1, mask=inside)
    if TWO:
        tl.store(OUT2 + b * M + cols, out2, mask=inside)


@triton.jit
@no_type_check
def _weighted(V, v_b, v_h, v_n, A, OUT, N, D, H: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr):
    """α v as two bfloat16 numbers, [token, half, head, dim]."""
    block, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    mask = (tokens < N)[:, None] & (dims < D)[None, :]
    v = tl.load(V + b * v_b + h * v_h + tokens[:, None].to(tl.int64) * v_n + dims[None, :], mask=mask, other=0.0)
    a = tl.load(A + (b * H + h) * N + tokens, mask=tokens < N, other=0.0)
    product = v.to(tl.float32) * a[:, None]
    high = product.to(tl.bfloat16)
    place = (b * N + tokens[:, None]) * (2 * H * D) + h * D + dims[None, :]
    tl.store(OUT + place, high, mask=mask)
    tl.store(OUT + place + H * D, (product - high.to(tl.float32)).to(tl.bfloat16), mask=mask)


@triton.jit
@no_type_check
def _own_norms(
    TOTAL, OWN, X, BIAS, GAMMA, OUT, T, E, eps, divisor,
    ADDED: tl.constexpr, NORMED: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_GAMMA: tl.constexpr,
    EP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Of each token: ‖own‖, ‖others‖, ‖own + x‖, ‖x‖, and behind the norm ‖own + x‖, ‖others‖, 1/s, ‖own‖."""
    rows, dims = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, EP)
    real, wide = rows < T, dims < E
    at, mask = rows[:, None].to(tl.int64) * E + dims[None, :], real[:, None] & wide[None, :]
    total = tl.load(TOTAL + at, mask=mask, other=0.0)
    own = tl.load(OWN + at, mask=mask, other=0.0)
    others = total - own
    tl.store(OUT + rows, tl.sqrt(tl.sum(own * own, 1)), mask=real)
    tl.store(OUT + T + rows, tl.sqrt(tl.sum(others * others, 1)), mask=real)
    if ADDED:
        x = tl.load(X + at, mask=mask, other=0.0).to(tl.float32)
        with_x = own + x
        tl.store(OUT + 2 * T + rows, tl.sqrt(tl.sum(with_x * with_x, 1)), mask=real)
        tl.store(OUT + 3 * T + rows, tl.sqrt(tl.sum(x * x, 1)), mask=real)
        if NORMED:
            whole = total + x
            if HAS_BIAS:
                whole += tl.load(BIAS + dims, mask=wide, other=0.0)[None, :]
            gamma = tl.full([EP], 1.0, tl.float32)
            if HAS_GAMMA:
                gamma = tl.load(GAMMA + dims, mask=wide, other=0.0)
            centred = tl.where(mask, whole - (tl.sum(whole, 1) / E)[:, None], 0.0)
            deviation = tl.sqrt(tl.sum(centred * centred, 1) / divisor + eps)
            share = tl.where(deviation > 0, 1.0 / deviation, 0.0)
            mine = tl.where(mask, (with_x - (tl.sum(with_x, 1) / E)[:, None]) * gamma[None, :], 0.0)
            theirs = tl.where(mask, (others - (tl.sum(others, 1) / E)[:, None]) * gamma[None, :], 0.0)
            tl.store(OUT + 4 * T + rows, tl.sqrt(tl.sum(mine * mine, 1)) * share, mask=real)
            tl.store(OUT + 5 * T + rows, tl.sqrt(tl.sum(theirs * theirs, 1)) * share, mask=real)
            tl.store(OUT + 6 * T + rows, share, mask=real)
            alone = tl.where(mask, (own - (tl.sum(own, 1) / E)[:, None]) * gamma[None, :], 0.0)
            tl.store(OUT + 7 * T + rows, tl.sqrt(tl.sum(alone * alone, 1)) * share, mask=real)


def gram(
    value: Float[Tensor, "batch head key dim"], parts: Projections, *, normed: bool = False
) -> Float[Tensor, "batch head head key"]:
    """As `norms.gram`, from values as they are."""
    batch, heads, keys, dim = value.shape
    value = value if value.stride(-1) == 1 else value.contiguous()
    split = value.dtype == torch.bfloat16
    if split:
        first, second = parts.halves["normed products" if normed else "products"]
    else:
        first = parts.normed_products if normed and parts.normed_products is not None else parts.products
        second, value = first, value.to(torch.float32)
    out = torch.zeros(batch, heads, heads, keys, dtype=torch.float32, device=value.device)
    width = triton.next_power_of_2(max(dim, 16))
    tokens = 16 if INTERPRETED else 64 if split else 32
    _gram[triton.cdiv(keys, tokens), heads, batch](
        value, *value.stride()[:3], first, second, out, keys, dim, H=heads,
        DP=width, BT=tokens, SPLIT=split, PRECISION="ieee" if split else "tf32x3",
    )  # fmt: skip
    return out


def received(
    scores: Scores,
    log_sum: Float[Tensor, "batch head query"],
    grams: Sequence[Float[Tensor, "batch head head key"]],
    queries: Sequence[Float[Tensor, "batch query"]],
) -> list[Float[Tensor, "batch key"]]:
    """Σ_i w_i ‖Σ_h α^h_ij f^h(x_j)‖ of every key, for one or two Gram matrices with the weights of the queries."""
    launch = Launch(scores)
    out = [log_sum.new_empty(launch.batch, launch.keys) for _ in grams]
    weights = [each.to(torch.float32).contiguous() for each in queries]
    for blocks in _pair_blocks(scores.query):
        try:
            _launch_pairs(launch, log_sum, grams, weights, out, blocks)
            break
        except triton.runtime.errors.OutOfResources:  # the last are the smallest that there are
            if blocks is _SMALLEST:
                raise
    return out


_SMALLEST = {"BM": 16, "BN": 16, "num_warps": 2, "num_stages": 1}


def _pair_blocks(query: Tensor) -> list[dict[str, int]]:
    """Queries and keys of one block of pairs, to be tried in turn: first the fastest of those tried on an H200."""
    if INTERPRETED:
        return [{"BM": 16, "BN": 16}]
    first = {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 2}
    if query.dtype == torch.float32 or query.shape[-1] > 64:
        first = {"BM": 16, "BN": 32, "num_warps": 4, "num_stages": 1}
    return [first, _SMALLEST]


def _launch_pairs(
    launch: Launch,
    log_sum: Tensor,
    grams: Sequence[Tensor],
    weights: Sequence[Tensor],
    out: Sequence[Tensor],
    blocks: dict[str, int],
) -> None:
    _pair_norms[triton.cdiv(launch.keys, blocks["BN"]), launch.batch](
        launch.query, *launch.query.stride()[:3], launch.key, *launch.key.stride()[:3], log_sum,
        grams[0], grams[-1], weights[0], weights[-1], out[0], out[-1], *launch.masks, *launch.limits,
        launch.queries, launch.keys, launch.dim, 0, H=launch.heads,
        DP=triton.next_power_of_2(max(launch.dim, 16)), TWO=len(grams) == 2,
        **launch.by_key(heads_alike=True), **blocks,
    )  # fmt: skip


def projected(context: Float[Tensor, "batch head token dim"], parts: Projections) -> Float[Tensor, "batch token model"]:
    """Σ_h y^h W_O^h in float32, from contexts as they are."""
    if context.dtype != torch.bfloat16:
        return parts.project(context.to(torch.float32))
    flat = context.transpose(1, 2).reshape(context.shape[0] * context.shape[2], -1)
    return _product(flat, parts.halves["output"]).view(context.shape[0], context.shape[2], -1)


def own_projected(
    weight: Float[Tensor, "batch head token"], value: Float[Tensor, "batch head token dim"], parts: Projections
) -> Float[Tensor, "batch token model"]:
    """Σ_h α_ii^h v_i^h W_O^h in float32."""
    if value.dtype != torch.bfloat16:
        return parts.project(weight[..., None] * value.to(torch.float32))
    batch, heads, tokens, dim = value.shape
    value = value if value.stride(-1) == 1 else value.contiguous()
    both = value.new_empty(batch * tokens, 2, heads * dim)
    block = 16 if INTERPRETED else 64
    _weighted[triton.cdiv(tokens, block), heads, batch](
        value, *value.stride()[:3], weight.to(torch.float32).contiguous(), both, tokens, dim,
        H=heads, DP=triton.next_power_of_2(dim), BT=block,
    )  # fmt: skip
    _, *second = parts.halves["output"]
    out = _product(both.flatten(1), parts.halves["output twice"])
    for term in second:
        out.add_(_product(both[:, 0], [term]))
    return out.view(batch, tokens, -1)


def _product(left: Float[Tensor, "row inner"], terms: Sequence[Tensor]) -> Float[Tensor, "row column"]:
    """left @ Σ terms, in float32."""
    if not left.is_cuda:  # the interpreter
        return sum((left.float() @ term.float() for term in terms), torch.zeros(()))
    out = torch.mm(left, terms[0], out_dtype=torch.float32)
    for term in terms[1:]:
        out.add_(torch.mm(left, term, out_dtype=torch.float32))
    return out


def own_norms(
    total: Float[Tensor, "batch token model"],
    own: Float[Tensor, "batch token model"],
    x: Float[Tensor, "batch token model"] | None,
    bias: Float[Tensor, " model"] | None,
    norm: FrozenNorm | None,
) -> Float[Tensor, "what batch token"]:
    """‖own‖, ‖others‖; with x ‖own + x‖ and ‖x‖; behind a norm ‖own + x‖, ‖others‖, 1/s, and ‖own‖."""
    batch, tokens, model = total.shape
    out = total.new_empty(8, batch, tokens)
    gamma = None if norm is None else norm.gamma
    rows = 2 if INTERPRETED else 4
    more = (total if each is None else each.contiguous() for each in (x, bias, gamma))
    _own_norms[triton.cdiv(batch * tokens, rows),](
        total, own, *more, out, batch * tokens, model,
        0.0 if norm is None else norm.eps, model - 1 if norm is not None and norm.unbiased else model,
        ADDED=x is not None, NORMED=norm is not None, HAS_BIAS=bias is not None, HAS_GAMMA=gamma is not None,
        EP=triton.next_power_of_2(model), BR=rows,
    )  # fmt: skip
    return out


__all__ = ["gram", "own_norms", "own_projected", "projected", "received", "refusal"]
