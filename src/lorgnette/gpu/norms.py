"""The norms of one call on a GPU: Gram matrices, norms of all heads' terms and of a token's own, in Triton.

A block of weights is written as [key, head, row], where the heads of a pair lie in a column: tensor cores make αᵀ G_j α
of them and each key's Gram matrix, and the roots are added up over the queries. Blocks stay in the second-level cache,
and nothing of size queries × keys is kept. Values of bfloat16 are exact as they are; what multiplies them enters as two
bfloat16 numbers whose sum keeps 16 bits. Weights and Gram matrices are float32, multiplied as three products of tf32.

This module imports Triton: `lorgnette.kernels` imports it where there is a GPU.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending.scores import Scores, per_query_head
from lorgnette.contributions.head_weights import Projections
from lorgnette.contributions.norms import FrozenNorm
from lorgnette.gpu.attention import INTERPRETED, WIDEST, Launch
from lorgnette.gpu.programs import block_scores, not_below, unit

MOST_HEADS = 128
"""The most heads whose Gram matrix fits into the registers of a block."""
BLOCK = 2**24
"""Weights that are written at a time: as many floats as the second-level cache of an H200 holds, or nearly so."""
ROWS = 512
"""Queries whose weights are written at a time, at most."""


def refusal(scores: Scores, value: Tensor) -> str | None:
    """Why these kernels do not take a call, in a few words; None if they do."""
    if scores.shape[1] > MOST_HEADS:
        return f"{scores.shape[1]} heads are over {MOST_HEADS}"
    if max(scores.query.shape[-1], value.shape[-1]) > WIDEST:
        return f"a head size over {WIDEST}"
    return None


@triton.jit
@no_type_check
def _gram(
    V, v_b, v_h, v_n, M1, M2, OUT, N, D, H: tl.constexpr, R: tl.constexpr,
    OWN: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, SPLIT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """v_jᵀ M_hg v_j of one head h with each g ≤ h, twice where g < h; R heads share their values.

    `OWN`: of each head with itself alone, with M_hh one below the other.
    """
    block, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    real = tokens < N
    at = V + b * v_b + tokens[:, None].to(tl.int64) * v_n
    own = tl.load(at + h // R * v_h + dims[None, :], mask=real[:, None] & (dims < D)[None, :], other=0.0)
    out = OUT + ((b * N + tokens) * H + h) * H
    if OWN:
        out = OUT + (b * H + h) * N + tokens - h
    for g in range(h if OWN else 0, h + 1):
        total = tl.zeros([BT], tl.float32)
        for start in tl.static_range(0, DP, BC):
            columns = start + tl.arange(0, BC)
            place = (h * D + dims[:, None]) * (H * D) + g * D + columns[None, :]
            if OWN:
                place = (h * D + dims[:, None]) * D + columns[None, :]
            square = (dims < D)[:, None] & (columns < D)[None, :]
            other = tl.load(
                at + g // R * v_h + columns[None, :], mask=real[:, None] & (columns < D)[None, :], other=0.0
            )
            projected = tl.dot(own, tl.load(M1 + place, mask=square, other=0.0), input_precision=PRECISION)
            if SPLIT:
                projected = tl.dot(own, tl.load(M2 + place, mask=square, other=0.0), projected)
            total += tl.sum(projected * other.to(tl.float32), 1)
        tl.store(out + g, total * tl.where(g < h, 2.0, 1.0), mask=real)


@triton.jit
@no_type_check
def _weights_by_key(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, LSE, OUT,
    ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
    scale, softcap, window, N, M, D, text, first_key, keys, first_row,
    H: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
    HAS_CAP: tl.constexpr, HAS_ALLOWED: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, EVEN: tl.constexpr, KEYS: tl.constexpr, R: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The weights of some rows and keys of some texts, [text key head row]."""
    column, row, th = tl.program_id(0) * BN, tl.program_id(1) * BM, tl.program_id(2)
    b, h = (text + th // H).to(tl.int64), (th % H).to(tl.int64)
    cols, rows, dims = first_key + column + tl.arange(0, BN), first_row + row + tl.arange(0, BM), tl.arange(0, DP)
    near = first_row + row + (M - N)  # the key at the first row
    seen = first_row + row < N
    if CAUSAL:
        seen = seen & (first_key + column <= near + BM - 1)
    if WINDOW:
        seen = seen & (first_key + column + BN - 1 >= near - window)
        if not CAUSAL:
            seen = seen & (first_key + column <= near + BM - 1 + window)
    if seen:
        inside, real = cols < first_key + keys, rows < N
        k = tl.load(K + b * k_b + h // R * k_h + cols[:, None].to(tl.int64) * k_n + dims[None, :],
                    mask=inside[:, None] & (dims < D)[None, :], other=0.0)  # fmt: skip
        q = tl.load(Q + b * q_b + h * q_h + rows[None, :].to(tl.int64) * q_n + dims[:, None],
                    mask=real[None, :] & (dims < D)[:, None], other=0.0)  # fmt: skip
        s = block_scores(
            tl.dot(k, q, input_precision=PRECISION), rows[None, :], cols[:, None], b, h, N, M, scale, softcap,
            window, ALLOWED, a_b, a_h, a_q, a_k, BIAS, b_b, b_h, b_q, b_k,
            HAS_CAP, HAS_ALLOWED, HAS_BIAS, CAUSAL, WINDOW, EVEN,
        )  # fmt: skip
        lse = tl.load(LSE + (b * H + h) * N + rows, mask=real, other=1e30)
        weights = tl.exp2(s * unit(scale, HAS_CAP, HAS_BIAS) - lse[None, :])
        at = ((th // H).to(tl.int64) * keys + cols - first_key) * H + h
        out = OUT + at[:, None] * ROWS + (row + tl.arange(0, BM))[None, :]
        tl.store(out, weights, mask=inside[:, None] & (row + tl.arange(0, BM) < ROWS)[None, :])


@triton.jit
@no_type_check
def _norms_of_pairs(
    A, G1, G2, W1, W2, OUT1, OUT2, ALLOWED, a_b, a_k, window, N, M, text, first_key, keys, first_row,
    H: tl.constexpr, HP: tl.constexpr, ROWS: tl.constexpr, TWO: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Adds Σ_i w_i √(αᵀ G_j α) over some rows to what each of some keys has."""
    j, t = first_key + tl.program_id(0), tl.program_id(1)
    b, heads = (text + t).to(tl.int64), tl.arange(0, HP)
    square = (heads < H)[:, None] & (heads < H)[None, :]
    at = (b * M + j) * H * H + heads[:, None] * H + heads[None, :]
    g1 = tl.load(G1 + at, mask=square, other=0.0)
    g2 = tl.load(G2 + at, mask=square, other=0.0) if TWO else g1
    total1, total2 = tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    begin, end = 0, N  # the rows that see this key
    if CAUSAL or WINDOW:
        begin = j - (M - N) - (0 if CAUSAL else window)
    if WINDOW:
        end = tl.minimum(N, j - (M - N) + window + 1)
    low, high = tl.maximum(begin - first_row, 0) // BM * BM, tl.minimum(end - first_row, ROWS)
    column = A + ((t.to(tl.int64) * keys + tl.program_id(0)) * H + heads[:, None]) * ROWS
    for start in range(low, high, BM):
        r = start + tl.arange(0, BM)
        rows = first_row + r
        inside = (r < high) & (rows >= begin)
        a = tl.load(column + r[None, :], mask=(heads < H)[:, None] & inside[None, :], other=0.0)
        square1 = tl.sum(tl.dot(g1, a, input_precision="tf32x3") * a, 0)
        total1 += tl.sqrt(not_below(square1, 0.0)) * tl.load(W1 + b * N + rows, mask=inside, other=0.0)
        if TWO:
            square2 = tl.sum(tl.dot(g2, a, input_precision="tf32x3") * a, 0)
            total2 += tl.sqrt(not_below(square2, 0.0)) * tl.load(W2 + b * N + rows, mask=inside, other=0.0)
    sum1, sum2, seen = tl.sum(total1, 0), tl.sum(total2, 0), True
    if KEYS:  # weights of keys that no row sees are not weights
        seen = tl.load(ALLOWED + b * a_b + j * a_k) != 0
    tl.store(OUT1 + b * M + j, tl.where(seen, tl.load(OUT1 + b * M + j) + sum1, 0.0))
    if TWO:
        tl.store(OUT2 + b * M + j, tl.where(seen, tl.load(OUT2 + b * M + j) + sum2, 0.0))


@triton.jit
@no_type_check
def _weighted(
    V, v_b, v_h, v_n, A, OUT, N, D, half, H: tl.constexpr, R: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr
):
    """α v as two bfloat16 numbers, [half, token, head, dim]."""
    block, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    tokens, dims = block * BT + tl.arange(0, BT), tl.arange(0, DP)
    mask = (tokens < N)[:, None] & (dims < D)[None, :]
    v = tl.load(V + b * v_b + h // R * v_h + tokens[:, None].to(tl.int64) * v_n + dims[None, :], mask=mask, other=0.0)
    a = tl.load(A + (b * H + h) * N + tokens, mask=tokens < N, other=0.0)
    product = v.to(tl.float32) * a[:, None]
    high = product.to(tl.bfloat16)
    place = (b * N + tokens[:, None]) * (H * D) + h * D + dims[None, :]
    tl.store(OUT + place, high, mask=mask)
    tl.store(OUT + place + half, (product - high.to(tl.float32)).to(tl.bfloat16), mask=mask)


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
    value: Float[Tensor, "batch group key dim"], parts: Projections, *, normed: bool = False
) -> Float[Tensor, "batch head head key"]:
    """`norms.gram` for values as the model has them: once for each group of heads."""
    (batch, _, keys, _), heads = value.shape, parts.weight.shape[0]
    out = torch.zeros(batch, keys, heads, heads, dtype=torch.float32, device=value.device)  # in one piece for each key
    _launch_gram(value, parts, "normed_products" if normed else "products", out)
    return out.permute(0, 2, 3, 1)


def head_norms(value: Float[Tensor, "batch group key dim"], parts: Projections) -> Float[Tensor, "batch head key"]:
    """`norms.head_norms` for values as the model has them."""
    (batch, _, keys, _), heads = value.shape, parts.weight.shape[0]
    out = torch.empty(batch, heads, keys, dtype=torch.float32, device=value.device)
    _launch_gram(value, parts, "own_products", out)
    return out.clamp_(min=0).sqrt_()


def _launch_gram(value: Tensor, parts: Projections, which: str, out: Tensor) -> None:
    (batch, groups, keys, dim), heads = value.shape, parts.weight.shape[0]
    value = value if value.stride(-1) == 1 else value.contiguous()
    split = value.dtype == torch.bfloat16
    if split:
        first, second = getattr(parts, f"{which}_halves")
    else:
        first = second = getattr(parts, which)
        value = value.to(torch.float32)
    width = triton.next_power_of_2(max(dim, 16))
    for blocks in _gram_blocks(width, split=split):
        try:
            _gram[triton.cdiv(keys, blocks["BT"]), heads, batch](
                value, *value.stride()[:3], first, second, out, keys, dim, H=heads, R=heads // groups,
                OWN=which == "own_products", DP=width, SPLIT=split, PRECISION="ieee" if split else "tf32x3", **blocks,
            )  # fmt: skip
            return
        except triton.runtime.errors.OutOfResources:
            if blocks is _SMALLEST_GRAM:
                raise


_SMALLEST_GRAM = {"BT": 16, "BC": 16, "num_warps": 4, "num_stages": 1}


def _gram_blocks(width: int, *, split: bool) -> list[dict[str, int]]:
    """Tokens of a block and columns of a product, to be tried in turn: first the fastest of those tried on an H200."""
    if INTERPRETED:
        return [{"BT": 16, "BC": width}]
    if not split:
        return [{"BT": 32, "BC": min(width, 64), "num_warps": 4, "num_stages": 2}, _SMALLEST_GRAM]
    return [{"BT": 64, "BC": min(width, 128), "num_warps": 4, "num_stages": 3}, _SMALLEST_GRAM]


class _Piece(NamedTuple):
    """How many texts, keys and rows of weights are written at a time."""

    text: int
    texts: int
    key: int
    keys: int
    row: int


def received(
    scores: Scores,
    log_sum: Float[Tensor, "batch head query"],
    grams: Sequence[Float[Tensor, "batch head head key"]],
    queries: Sequence[Float[Tensor, "batch query"]],
) -> list[Float[Tensor, "batch key"]]:
    """Σ_i w_i ‖Σ_h α^h_ij f^h(x_j)‖ of every key, for one or two Gram matrices with the weights of the queries."""
    launch = Launch(scores)
    out = [log_sum.new_zeros(launch.batch, launch.keys) for _ in grams]
    weights = [each.to(torch.float32).contiguous() for each in queries]
    by_key = [each.permute(0, 3, 1, 2).contiguous() for each in grams]  # as `gram` has made them
    flags = launch.by_key(heads_alike=True)
    rows = min(ROWS, triton.cdiv(launch.queries, 16) * 16)
    keys = min(launch.keys, max(64, BLOCK // (launch.heads * rows)))
    texts = min(launch.batch, max(1, BLOCK // (launch.heads * rows * keys)))
    block = log_sum.new_empty(texts * keys * launch.heads * rows)
    for piece in _pieces(scores, rows, keys, texts):
        _write_weights(launch, log_sum, block, piece, rows, flags)
        _norms_of_pairs[piece.keys, piece.texts](
            block, by_key[0], by_key[-1], weights[0], weights[-1], out[0], out[-1],
            launch.masks[0], launch.masks[1], launch.masks[4], launch.limits[2], launch.queries, launch.keys,
            piece.text, piece.key, piece.keys, piece.row, H=launch.heads,
            HP=triton.next_power_of_2(max(launch.heads, 16)), ROWS=rows, TWO=len(grams) == 2,
            CAUSAL=flags["CAUSAL"], WINDOW=flags["WINDOW"], KEYS=flags["KEYS"],
            BM=16 if INTERPRETED else 128 if launch.heads <= 64 else 64,
        )  # fmt: skip
    return out


def _pieces(scores: Scores, rows: int, keys: int, texts: int) -> Iterator[_Piece]:
    """Blocks of rows and keys that together cover every pair of a row and a key visible to it."""
    batch, _, every_row, every_key = scores.shape
    band, offset = scores.hidden[1], every_key - every_row
    for text in range(0, batch, texts):
        for key in range(0, every_key, keys):
            last = min(key + keys, every_key) - 1
            for row in range(0, every_row, rows):
                nearest, farthest = row + offset, row + offset + rows - 1  # the keys at its first row and its last
                hidden = band.causal and key > farthest
                if band.window is not None:
                    hidden = hidden or last < nearest - band.window or key > farthest + band.window
                if not hidden:
                    yield _Piece(text, min(texts, batch - text), key, last + 1 - key, row)


def _write_weights(
    launch: Launch, log_sum: Tensor, block: Tensor, piece: _Piece, rows: int, flags: dict[str, bool | int | str]
) -> None:
    width = triton.next_power_of_2(max(launch.dim, 16))
    for blocks in _weight_blocks(launch.query.dtype, width):
        grid = (triton.cdiv(piece.keys, blocks["BN"]), triton.cdiv(rows, blocks["BM"]), piece.texts * launch.heads)
        try:
            _weights_by_key[grid](
                launch.query, *launch.query.stride()[:3], launch.key, *launch.key.stride()[:3], log_sum, block,
                *launch.masks, *launch.limits, launch.queries, launch.keys, launch.dim,
                piece.text, piece.key, piece.keys, piece.row, H=launch.heads, DP=width, ROWS=rows, **flags, **blocks,
            )  # fmt: skip
            return
        except triton.runtime.errors.OutOfResources:
            if blocks is _SMALLEST:
                raise


_SMALLEST = {"BM": 16, "BN": 16, "num_warps": 2, "num_stages": 1}


def _weight_blocks(dtype: torch.dtype, width: int) -> list[dict[str, int]]:
    """Rows and keys of one block of weights, to be tried in turn: first the fastest of those tried on an H200."""
    if INTERPRETED:
        return [{"BM": 16, "BN": 16}]
    if dtype == torch.float32 or width > 128:
        return [{"BM": 64, "BN": 32, "num_warps": 4, "num_stages": 1}, _SMALLEST]
    return [{"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 1}, _SMALLEST]


def projected(context: Float[Tensor, "batch head token dim"], parts: Projections) -> Float[Tensor, "batch token model"]:
    """Σ_h y^h W_O^h in float32, from contexts as they are."""
    if context.dtype != torch.bfloat16:
        return parts.project(context.to(torch.float32))
    flat = context.transpose(1, 2).reshape(context.shape[0] * context.shape[2], -1)
    return _product(flat, parts.output_halves).view(context.shape[0], context.shape[2], -1)


def own_projected(
    weight: Float[Tensor, "batch head token"], value: Float[Tensor, "batch group token dim"], parts: Projections
) -> Float[Tensor, "batch token model"]:
    """Σ_h α_ii^h v_i^h W_O^h in float32, from values as the model has them."""
    if value.dtype != torch.bfloat16:
        return parts.project(weight[..., None] * per_query_head(value, weight.shape[1]).to(torch.float32))
    (batch, groups, tokens, dim), heads = value.shape, weight.shape[1]
    value = value if value.stride(-1) == 1 else value.contiguous()
    both = value.new_empty(2, batch * tokens, heads * dim)
    block = 16 if INTERPRETED else 64
    _weighted[triton.cdiv(tokens, block), heads, batch](
        value, *value.stride()[:3], weight.to(torch.float32).contiguous(), both, tokens, dim, both.stride(0),
        H=heads, R=heads // groups, DP=triton.next_power_of_2(dim), BT=block,
    )  # fmt: skip
    first, *second = parts.output_halves
    out = _product(both[0], [first, *second])
    return out.add_(_product(both[1], [first])).view(batch, tokens, -1)


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
    wide = triton.next_power_of_2(model)
    rows = 2 if INTERPRETED else max(1, 4096 // wide)
    more = (total if each is None else each.contiguous() for each in (x, bias, gamma))
    _own_norms[triton.cdiv(batch * tokens, rows),](
        total, own, *more, out, batch * tokens, model,
        0.0 if norm is None else norm.eps, model - 1 if norm is not None and norm.unbiased else model,
        ADDED=x is not None, NORMED=norm is not None, HAS_BIAS=bias is not None, HAS_GAMMA=gamma is not None,
        EP=wide, BR=rows, num_warps=4 if wide <= 1024 else 8,
    )  # fmt: skip
    return out


__all__ = ["gram", "head_norms", "own_norms", "own_projected", "projected", "received", "refusal"]
