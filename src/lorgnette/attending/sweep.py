"""Exact statistics of attention rows in one sweep over blocks of rows, without the n×n matrix.

With scores s_ij, m_i = max_j s_ij, e_ij = exp(s_ij − m_i), Z_i = Σ_j e_ij and α_ij = e_ij / Z_i:

    average   Σ_j α_ij φ_j          = (Σ_j e_ij φ_j) / Z_i
    entropy   −Σ_j α_ij log α_ij    = log Z_i − (Σ_j e_ij (s_ij − m_i)) / Z_i
    peak      max_j α_ij            = 1 / Z_i
    at        α_{i,i+o}             = e_{i,i+o} / Z_i
    received  Σ_i w_i α_ij

A learnt sink with score s_h is one more term e_i = exp(s_h − m_i) of Z_i and of the entropy, and m_i is the maximum
with it; peak is then max_j e_ij / Z_i, and sink = e_i / Z_i.

Everything comes from one exponential, in a block that stays in the cache. Working with s − m keeps the entropy exact
to rounding even for scores of hundreds, and never below zero by more than rounding (it is clamped). Scores are in base
2 from the product on (times log₂ e): torch's exp2 takes .3 ns on every number, its exp 0.9, and 6 to 9 where the
result is zero, as behind every mask.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lorgnette.attending.blocks import BANDED, blocks, keys_of
from lorgnette.attending.scores import MASKED, Scores, part, per_query_head
from lorgnette.statistics.entropy import entropy

BLOCK = {"cpu": 2**19, "cuda": 2**26}
"""Floats in one block. On the CPU two such blocks about fill the second-level cache."""

_LOG2E = 1.4426950408889634

Watcher = Callable[[Float[Tensor, "text head row key"], slice, slice], None]


@dataclass(frozen=True)
class Wanted:
    """Which statistics of the rows to compute."""

    features: Shaped[Tensor, "batch key feature"] | Shaped[Tensor, "batch head key feature"] | None = None
    entropy: bool = False
    peak: bool = False
    among: Bool[Tensor, "batch key"] | None = None
    """Also the peak over these keys only (not renormalised)."""
    positions: bool = False
    """Also where the peaks are."""
    offsets: tuple[int, ...] = ()
    received: Shaped[Tensor, "batch query"] | Shaped[Tensor, "batch query what"] | None = None
    """Weights w_i of the queries in Σ_i w_i α_ij; or several of them, side by side."""
    context: bool = False
    sink: bool = False
    """What the sink takes of each row, where there is one."""
    log_sum: bool = False
    """log₂ Σ_j exp(s_ij), a sink among the terms; 1e30 in rows that may see nothing. Not from a matrix."""
    block: "Watcher | None" = None
    """Shown α of all heads, some texts and rows at a time, with the slices of texts and rows; must not keep or edit it.
    For what needs heads together, such as the norm of their sum."""
    context_block: "Watcher | None" = None
    """Shown the context of the same texts and rows just before; not where the weights come from a matrix."""


@dataclass
class Measured:
    """The requested statistics; the others are None. Shapes [batch head query …], `received` [batch head key]."""

    average: Float[Tensor, "batch head query feature"] | None = None
    entropy: Float[Tensor, "batch head query"] | None = None
    peak: Float[Tensor, "batch head query"] | None = None
    peak_position: Int[Tensor, "batch head query"] | None = None
    peak_among: Float[Tensor, "batch head query"] | None = None
    peak_among_position: Int[Tensor, "batch head query"] | None = None
    at: Float[Tensor, "batch head query offset"] | None = None
    received: Float[Tensor, "batch head key"] | Float[Tensor, "batch head key what"] | None = None
    context: Float[Tensor, "batch head query dim"] | None = None
    sink: Float[Tensor, "batch head query"] | None = None
    log_sum: Float[Tensor, "batch head query"] | None = None

    def __getitem__(self, name: str) -> Tensor:
        """A requested statistic."""
        statistic = getattr(self, name)
        assert isinstance(statistic, Tensor), f"{name} was not asked for"
        return statistic


def from_matrix(
    weights: Float[Tensor, "batch head query key"], wanted: Wanted, sunk: Bool[Tensor, "batch 1 query"] | None = None
) -> Measured:
    """The same statistics from a matrix that already exists; differentiable.

    `sunk`: the rows of which a sink has what is missing to one.
    """
    out = Measured()
    sink = None if sunk is None else (1 - weights.sum(-1)).clamp(min=0).masked_fill(~sunk, 0.0)
    if wanted.sink:
        out.sink = sink
    if wanted.features is not None:
        out.average = weights @ per_head(wanted.features).to(weights.dtype)
    if wanted.entropy:
        out.entropy = entropy(weights)
        if sink is not None:
            out.entropy = out.entropy + entropy(sink[..., None])
    if wanted.peak:
        out.peak, out.peak_position = _maximum(weights, wanted.positions)
    if wanted.among is not None:
        chosen = weights.masked_fill(~wanted.among[:, None, None, :], 0.0)
        out.peak_among, out.peak_among_position = _maximum(chosen, wanted.positions)
    if wanted.offsets:
        out.at = torch.stack([_diagonal(weights, 0, offset) for offset in wanted.offsets], dim=-1)
    if wanted.received is not None:
        several = "bhqk,bqw->bhkw" if wanted.received.dim() == 3 else "bhqk,bq->bhk"
        out.received = torch.einsum(several, weights, wanted.received.to(weights.dtype))
    if wanted.block is not None:
        for texts, _, rows in blocks(weights.shape, budget(weights.device), together=True):
            wanted.block(weights[texts, :, rows].detach(), texts, rows)
    return out


def swept(scores: Scores, value: Float[Tensor, "batch group key dim"] | None, wanted: Wanted) -> Measured:
    """The statistics of all rows, a block of rows at a time; memory O(block), no gradient."""
    with torch.no_grad():
        sweep = _Sweep(scores, value, wanted)
        for block in blocks(scores.shape, sweep.size, together=wanted.block is not None, most=sweep.most):
            sweep.take(*block)
        return sweep.finish()


def budget(device: torch.device) -> int:
    """Floats in one block on this device."""
    return BLOCK.get(device.type, BLOCK["cpu"])


def per_head(features: Tensor) -> Tensor:
    """Features of keys with an axis for heads; heads share them unless each has its own."""
    return features[:, None] if features.dim() == 3 else features


def _maximum(weights: Tensor, positions: bool) -> tuple[Tensor, Tensor | None]:
    """The maximum of each row and, if wanted, its position; on a CPU by NumPy, five times as fast as torch."""
    if not positions:
        return weights.amax(-1), None
    numpy = weights.device.type == "cpu" and weights.dtype != torch.bfloat16  # the call has no such output
    where = torch.from_numpy(np.argmax(weights.detach().numpy(), -1)) if numpy else weights.argmax(-1)
    return weights.amax(-1), where


def _diagonal(block: Float[Tensor, "*rest row key"], first: int, offset: int) -> Float[Tensor, "*rest row"]:
    """block[…, i, first + i + offset], zero outside."""
    rows, keys = block.shape[-2:]
    out = block.new_zeros(block.shape[:-1])
    start = max(0, -(first + offset))
    stop = min(rows, keys - first - offset)
    if stop > start:
        out[..., start:stop] = block.diagonal(first + offset, dim1=-2, dim2=-1)[..., : stop - start]
    return out


@dataclass
class _Sweep:
    scores: Scores
    value: Tensor | None
    wanted: Wanted

    def __post_init__(self) -> None:
        scores, wanted = self.scores, self.wanted
        wide = torch.promote_types(scores.query.dtype, torch.float32)
        batch, head, queries, keys = scores.shape
        self.query = scores.query.to(wide).contiguous()
        # Transposed copy: the product then reads the keys in rows.
        self.key = per_query_head(scores.key.to(wide), head).contiguous().transpose(-1, -2)
        self.width = self.value.shape[-1] if wanted.context and self.value is not None else 0
        self.columns = self._columns(wide)
        allowed, self.band = scores.hidden
        self.mask = None if allowed is None else self._added(allowed)
        self.near: tuple[slice, Tensor] | None = None  # the band of the last block of rows
        if wanted.among is not None:
            # A product with zeros and ones: ten times faster on the CPU than filling by a mask.
            self.chosen = wanted.among[:, None, None, :].to(wide)
        new = self.query.new_empty
        self.mixed = None if self.columns is None else new(batch, head, queries, self.columns.shape[-1])
        self.entropy = new(batch, head, queries) if wanted.entropy else None
        self.total = new(batch, head, queries)
        self.largest = new(batch, head, queries) if wanted.log_sum else None
        sunk = scores.sink is not None
        self.top = new(batch, head, queries) if sunk and wanted.peak else None
        self.sink = new(batch, head, queries) if sunk and wanted.sink else None
        self.position = new(batch, head, queries, dtype=torch.long) if wanted.peak and wanted.positions else None
        self.among = new(batch, head, queries) if wanted.among is not None else None
        among_where = wanted.among is not None and wanted.positions
        self.among_position = new(batch, head, queries, dtype=torch.long) if among_where else None
        self.at = new(batch, head, queries, len(wanted.offsets)) if wanted.offsets else None
        self.summed = None  # [batch what query]: weights of the queries over which attention is summed
        if wanted.received is not None:
            summed = wanted.received.to(wide)
            self.summed = summed.mT if summed.dim() == 3 else summed[:, None]
            self.received = self.query.new_zeros(batch, head, self.summed.shape[1], keys)
        self.empty = scores.visible().eq(0) if scores.allowed is not None else None
        if self.empty is not None and not self.empty.any():
            self.empty = None
        one_row = keys if wanted.block is None else head * keys
        self.size = budget(self.query.device)
        narrow = bool(self.band) and wanted.block is None and self.query.device.type == "cpu"
        self.most = BANDED if narrow else None
        self.buffers = new(2, min(self.size, batch * head * queries * keys) + one_row)

    def _added(self, allowed: Tensor) -> Tensor:
        """A mask as a term to add to the scores."""
        return self.query.new_zeros(allowed.shape).masked_fill_(~allowed, MASKED)

    def _columns(self, wide: torch.dtype) -> Tensor | None:
        """Values and features side by side, so that one product averages them all by the weights."""
        batch, head, _, keys = self.scores.shape
        columns = []
        if self.width and self.value is not None:
            columns.append(per_query_head(self.value.to(wide), head))
        if self.wanted.features is not None:
            features = per_head(self.wanted.features).to(wide)
            columns.append(features.expand(batch, head, keys, features.shape[-1]))
        return torch.cat(columns, dim=-1).contiguous() if columns else None

    def _hidden(self, b: slice, h: slice, r: slice, k: slice) -> Tensor | None:
        """The term that hides masked keys when added to the scores of a block."""
        mask = None if self.mask is None else part(self.mask, b, h, r)
        if not self.band:
            return mask
        if self.near is None or self.near[0] != r:
            near = self.band.keys(r, *self.scores.shape[2:], self.query.device)[:, k]
            self.near = r, self._added(near)[None, None]
        return self.near[1] if mask is None else torch.minimum(mask[..., k], self.near[1])

    def _block_scores(self, b: slice, h: slice, r: slice, k: slice) -> tuple[Tensor, Tensor]:
        """The block of scores in base 2, and a buffer of its shape."""
        scores, hidden = self.scores, self._hidden(b, h, r, k)
        query, key = self.query[b, h, r], self.key[b, h, :, k]
        shape = (*query.shape[:3], key.shape[-1])
        size = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[-1]
        s, e = (buffer[:size].view(shape) for buffer in self.buffers)
        flat = s.view(-1, *shape[2:])
        left, right = query.reshape(-1, *query.shape[2:]), key.reshape(-1, *key.shape[2:])
        if hidden is not None and scores.plain:
            start = hidden.expand(shape)
            if shape[0] > 1 and shape[1] > 1:
                s.copy_(start)
                start, flat_start = s, flat
            else:
                flat_start = start.reshape(-1, *shape[2:])
            torch.baddbmm(flat_start, left, right, alpha=scores.scale * _LOG2E, out=flat)
        else:
            scale = scores.scale * (_LOG2E if scores.plain else 1.0)
            torch.baddbmm(flat, left, right, beta=0, alpha=scale, out=flat)
        if scores.softcap is not None:
            s.div_(scores.softcap).tanh_().mul_(scores.softcap)
        if scores.bias is not None:
            s.add_(part(scores.bias, b, h, r)[..., k].to(s.dtype))
        if not scores.plain:
            s.mul_(_LOG2E)
            if hidden is not None:
                s.add_(hidden)
        return s, e

    def take(self, b: slice, h: slice, r: slice) -> None:
        wanted = self.wanted
        k = (
            slice(0, self.scores.shape[3])
            if wanted.block is not None
            else keys_of(self.band, r, *self.scores.shape[2:])
        )
        s, e = self._block_scores(b, h, r, k)
        m, where = _maximum(s, self.position is not None)
        if where is not None:
            self.position[b, h, r] = where + k.start  # type: ignore[index]
        sunk = None
        if self.scores.sink is not None:
            top, score = m, self.scores.sink[h].to(m.dtype)[:, None] * _LOG2E
            m = torch.maximum(m, score)
            below = score - m
            sunk = below.exp2()
        if self.largest is not None:
            self.largest[b, h, r] = m
        s.sub_(m[..., None])
        torch.exp2(s, out=e)
        z = e.sum(-1)
        if sunk is not None:
            z += sunk
            if self.top is not None:
                self.top[b, h, r] = (top - m).exp2_()
            if self.sink is not None:
                self.sink[b, h, r] = sunk
        self.total[b, h, r] = z
        if self.mixed is not None and self.columns is not None:
            flat = e.reshape(-1, *e.shape[2:])
            columns = self.columns[b, h, k]
            mixed = torch.bmm(flat, columns.reshape(-1, *columns.shape[2:])).view(*e.shape[:3], -1).div_(z[..., None])
            if self.empty is not None:
                mixed.masked_fill_(self.empty[b, :, r, None], 0.0)
            self.mixed[b, h, r] = mixed
        if self.summed is not None:
            share = self.summed[b, None, :, r] / z[:, :, None]
            if self.empty is not None:
                share = share.masked_fill(self.empty[b, :, None, r], 0.0)
            self.received[b, h, :, k] += share @ e
        for number, offset in enumerate(wanted.offsets):
            self.at[b, h, r, number] = _diagonal(e, r.start - k.start, offset)  # type: ignore[index]
        if self.entropy is not None:
            self.entropy[b, h, r] = torch.mul(s, e, out=s).sum(-1)
            if sunk is not None:
                self.entropy[b, h, r] += below * sunk
        if wanted.block is not None:
            weights = torch.div(e, z[..., None], out=s)  # the scores are not needed any more
            if self.empty is not None:
                weights.masked_fill_(self.empty[b, :, r, None], 0.0)
            if wanted.context_block is not None and self.width:
                wanted.context_block(mixed[..., : self.width], b, r)
            wanted.block(weights, b, r)
        if self.among is not None:
            e.mul_(self.chosen[b, :, :, k])
            self.among[b, h, r], where = _maximum(e, wanted.positions)
            if where is not None:
                self.among_position[b, h, r] = where + k.start  # type: ignore[index]

    def finish(self) -> Measured:
        """Divide the remaining sums by Z, and set rows that see no key to zero."""
        out, wanted, total = Measured(), self.wanted, self.total
        if self.mixed is not None:
            out.context = self.mixed[..., : self.width] if self.width else None
            out.average = self.mixed[..., self.width :] if wanted.features is not None else None
        if self.entropy is not None:
            out.entropy = self._blank((total.log2() - self.entropy / total).mul_(1 / _LOG2E).clamp_(min=0.0))
        if wanted.peak:
            out.peak = self._blank((1.0 if self.top is None else self.top) / total)
            out.peak_position = self.position
        if self.sink is not None:
            out.sink = self._blank(self.sink / total)
        if self.largest is not None:
            out.log_sum = self.largest + total.log2()
            out.log_sum = out.log_sum if self.empty is None else out.log_sum.masked_fill(self.empty, 1e30)
        if self.among is not None:
            out.peak_among = self._blank(self.among / total)
            out.peak_among_position = self.among_position
        if self.at is not None:
            out.at = torch.stack([self._blank(each / total) for each in self.at.unbind(-1)], -1)
        if wanted.received is not None:
            out.received = self.received.mT if wanted.received.dim() == 3 else self.received[:, :, 0]
        return out

    def _blank(self, tensor: Tensor) -> Tensor:
        return tensor if self.empty is None else tensor.masked_fill(self.empty, 0.0)
