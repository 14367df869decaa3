"""The statistics of the sweep, fused into two Triton kernels for a GPU; the sweep stays the fallback and the oracle.

`programs` has the formulas. This module imports Triton: import it only where there is a GPU (`Call.kernels` does).
"""

import os
from functools import lru_cache, partial

import torch
import triton
from torch import Tensor

from lorgnette.attending.scores import Scores
from lorgnette.attending.sweep import Measured, Wanted, per_head
from lorgnette.gpu.programs import column_sums, row_statistics

TooLarge = triton.runtime.errors.OutOfResources
"""Raised where a block does not fit into the shared memory or the registers of this GPU."""
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST = 256
"""The largest head size that fits on the chip."""
FEATURES = 16
"""Columns of masses that one pass computes; more columns take one pass for every 16."""


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


def measured(scores: Scores, value: Tensor, wanted: Wanted) -> Measured:
    """The statistics of the sweep, computed by the kernels; `refusal` must have returned None."""
    batch, heads, queries, keys = scores.shape
    call = Launch(scores)
    new = partial(torch.empty, device=scores.query.device)
    names = ["log_sum", "peak", *["entropy"] * wanted.entropy, *["peak_among"] * (wanted.among is not None)]
    rows = new(len(names), batch, heads, queries, dtype=torch.float32)  # one allocation: each costs time
    out = Measured(**dict(zip(names, rows.unbind(), strict=True)))
    if wanted.positions and wanted.peak:
        out.peak_position = torch.empty_like(rows[0], dtype=torch.int64)
    if wanted.positions and wanted.among is not None:
        out.peak_among_position = torch.empty_like(rows[0], dtype=torch.int64)
    out.at = new(batch, heads, queries, len(wanted.offsets), dtype=torch.float32) if wanted.offsets else None
    if wanted.context:  # the heads of a token side by side, as the output projection reads them
        out.context = new(batch, queries, heads, value.shape[-1], dtype=scores.query.dtype).transpose(1, 2)
    log_sum = out["log_sum"]
    features = None if wanted.features is None else per_head(wanted.features).expand(batch, heads, keys, -1)
    if features is not None and features.dtype == torch.bool:
        features = features.to(scores.query.dtype)
    parts = [None] if features is None else list(features.split(FEATURES, dim=-1))
    masses = [call.rows(value, wanted, out, log_sum, parts[0])]
    for part in parts[1:]:
        again = torch.empty_like(rows[:2])
        masses.append(call.rows(value, Wanted(features=part), Measured(peak=again[0]), again[1], part))
    if features is not None:
        out.average = masses[0] if len(masses) == 1 else torch.cat([mass for mass in masses if mass is not None], -1)
    if wanted.received is not None:
        several = wanted.received.dim() == 3
        each = [call.columns(one, log_sum) for one in (wanted.received.unbind(-1) if several else (wanted.received,))]
        out.received = torch.stack(each, -1) if several else each[0]
    out.peak = out.peak if wanted.peak else None
    out.log_sum = log_sum if wanted.log_sum else None
    return out


class Launch:
    """The arguments that both kernels share."""

    def __init__(self, scores: Scores) -> None:
        self.scores: Scores = scores
        self.query, self.key = _rows_together(scores.query), _rows_together(scores.key)
        self.batch, self.heads, self.queries, self.keys = scores.shape
        self.dim: int = scores.query.shape[-1]
        full, (allowed, band) = scores.shape, scores.hidden
        self.allowed: Tensor | None = None if allowed is None else allowed.expand(full).view(torch.uint8)
        self.bias: Tensor | None = None if scores.bias is None else scores.bias.expand(full)
        self.precision = "tf32x3" if scores.query.dtype == torch.float32 else "ieee"
        nothing = self.query
        masks = [(tensor if tensor is not None else nothing) for tensor in (self.allowed, self.bias)]
        self.masks = [argument for mask in masks for argument in (mask, *mask.stride())]
        self.flags = {
            "HAS_CAP": scores.softcap is not None,
            "HAS_ALLOWED": 0 if self.allowed is None else 1 if self.allowed.stride(2) == 0 else 2,
            "HAS_BIAS": self.bias is not None,
            "CAUSAL": band.causal,
            "WINDOW": band.window is not None,
            "R": self.heads // self.key.shape[1],
            "PRECISION": self.precision,
        }
        self.limits = (float(scores.scale), float(scores.softcap or 1.0), band.window or 0)

    def rows(
        self, value: Tensor, wanted: Wanted, out: Measured, log_sum: Tensor, features: Tensor | None
    ) -> Tensor | None:
        """Run the first kernel, which fills `out` and `log_sum`; returns the masses of these features."""
        nothing = log_sum
        given = lambda tensor: nothing if tensor is None else tensor  # noqa: E731
        value = _rows_together(value)
        columns = 0 if features is None else features.shape[-1]
        mass = None if features is None else log_sum.new_empty(*log_sum.shape, columns)
        phi = features if features is not None else self.query
        among = None if wanted.among is None else wanted.among.contiguous().view(torch.uint8)
        offsets = _offsets(wanted.offsets or (0,), log_sum.device)
        width, wide = triton.next_power_of_2(max(self.dim, 16)), triton.next_power_of_2(max(value.shape[-1], 16))
        settings = _row_blocks(max(width, wide), self.query.dtype, masses=features is not None)
        # The exponents of float16 are too few for the remainder of a float32 number.
        split = features is not None and (features.dtype == self.query.dtype or self.query.dtype == torch.bfloat16)
        split = split and self.query.dtype != torch.float32
        row_statistics[triton.cdiv(self.queries, settings["BM"]), self.batch * self.heads](
            self.query, *self.query.stride()[:3], self.key, *self.key.stride()[:3], value, *value.stride()[:3],
            phi, *phi.stride(), given(among), offsets, *self.masks,
            given(out.context), *given(out.context).stride()[:3], log_sum, given(out.entropy), out.peak,
            given(out.peak_position), given(out.peak_among), given(out.peak_among_position), given(mass), given(out.at),
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
        column_sums[triton.cdiv(self.keys, settings["BM"]), self.batch * self.heads](
            self.query, *self.query.stride()[:3], self.key, *self.key.stride()[:3], log_sum, weights, out,
            *self.masks, *self.limits, self.heads, self.queries, self.keys, self.dim,
            DP=width, **self.by_key(), **settings,
        )  # fmt: skip
        return out

    def by_key(self, *, heads_alike: bool = False) -> dict[str, bool | int | str]:
        """Flags of kernels that give one number for each key: where rows see the same keys, nothing need be hidden.

        What is hidden is put to zero at the end instead; keys behind the last are not written.
        """
        alike = self.flags["HAS_ALLOWED"] == 1
        if alike and heads_alike and self.allowed is not None:
            alike = self.allowed.stride(1) == 0
        return {**self.flags, "EVEN": True, "KEYS": alike, "HAS_ALLOWED": 0 if alike else self.flags["HAS_ALLOWED"]}


@lru_cache(maxsize=64)
def _offsets(offsets: tuple[int, ...], device: torch.device) -> Tensor:
    """Cached on the GPU: copying it there would block."""
    return torch.tensor(offsets, dtype=torch.int32, device=device)


def _rows_together(tensor: Tensor) -> Tensor:
    """The tensor, copied unless its last axis is contiguous; the other axes may have any strides."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _row_blocks(width: int, dtype: torch.dtype, *, masses: bool) -> dict[str, int]:
    """Queries and keys of one block of the first kernel; the fastest of those tried on an H200."""
    if INTERPRETED:
        return {"BM": 16, "BN": 16}
    if dtype == torch.float32 and width <= 64:
        return {"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 2}
    if dtype == torch.float32:
        return {"BM": 64, "BN": 32 if width <= 128 else 16, "num_warps": 4, "num_stages": 2}
    if width <= 64 and masses:  # a block that takes more registers leaves room for fewer blocks
        return {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3, "maxnreg": 168}
    if width <= 64:
        return {"BM": 128, "BN": 64, "num_warps": 4, "num_stages": 3}
    return {"BM": 64, "BN": 64 if width <= 128 else 32, "num_warps": 4, "num_stages": 2}


def _column_blocks(width: int, dtype: torch.dtype) -> dict[str, int]:
    """Keys and queries of one block of the second kernel."""
    if INTERPRETED:
        return {"BM": 16, "BN": 16}
    if dtype == torch.float32:
        return {"BM": 64, "BN": 64 if width <= 64 else 32 if width <= 128 else 16, "num_warps": 4, "num_stages": 2}
    return {"BM": 128, "BN": 64 if width <= 128 else 32, "num_warps": 4, "num_stages": 3 if width <= 64 else 2}


__all__ = ["INTERPRETED", "TooLarge", "measured", "refusal"]
