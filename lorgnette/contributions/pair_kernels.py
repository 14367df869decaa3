"""The pairs of all sites of a batch drawn on a GPU at once, without waiting for it; the same pairs as on a CPU.

How many numbers each group may give is reckoned here from the limits of the sample as they were last seen: they only
ever fall, so that what is drawn with an older one has all that belongs to the sample, and a little more.
"""

from typing import TYPE_CHECKING, Any, no_type_check
from weakref import ref

import numpy as np
import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.attending.scores import Scores
from lorgnette.contributions.pair_sample import NUMBER, Pairs, visible
from lorgnette.statistics.hashing import UNIT, bar
from lorgnette.texts.batch import Batch, Tokens

if TYPE_CHECKING:
    from lorgnette.contributions.pair_sample import PairSample

_BLOCK = 256
_REST = 2**40
"""The size of a group that is no group of pairs."""


@triton.jit
@no_type_check
def _mixed(bits):
    """`hashing.mixed`."""
    bits = bits + 0x9E3779B97F4A7C15
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


@triton.jit
@no_type_check
def _draw(GROUP, START, KEY, SIZE, HALF, BITS, INDEX, COUNT, BLOCK: tl.constexpr):
    """Random bits of each item of each group, and its place in the group's keyed permutation (`hashing._shuffled`)."""
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = item < COUNT
    group = tl.load(GROUP + item, mask=real, other=0)
    rank = (item - tl.load(START + group, mask=real, other=0)).to(tl.uint64)
    key = tl.load(KEY + group, mask=real, other=0).to(tl.uint64, bitcast=True)
    size = tl.load(SIZE + group, mask=real, other=1).to(tl.uint64)
    half = tl.load(HALF + group, mask=real, other=1).to(tl.uint64)
    golden = tl.full([BLOCK], 0x9E3779B97F4A7C15, tl.uint64)
    tl.store(BITS + item, (_mixed(key + golden * rank) >> 11).to(tl.int64), mask=real)
    low = (tl.full([BLOCK], 1, tl.uint64) << half) - 1
    out = tl.where(real, rank, 0)
    outside = real
    while tl.max(outside.to(tl.int32), 0) > 0:
        left, right = out >> half, out & low
        for turn in tl.static_range(4):
            mixed = _mixed(key ^ _mixed(right + (turn + 1) * 1099511627776))
            left, right = right, left ^ (mixed & low)
        out = tl.where(outside, (left << half) | right, out)
        outside = real & (out >= size)
    tl.store(INDEX + item, out.to(tl.int64), mask=real)


@triton.jit
@no_type_check
def _weigh(
    Q, q_b, q_h, q_n, K, k_b, k_h, k_n, LSE, NORM, TEXT, HEAD, QUERY, KEY, NUMBER, OUT,
    factor, COUNT, H, R, N, M, D, DP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of each pair: its number, 2^(q·k − log-sum), and the norm of its key."""
    item, dims = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DP)
    real = item < COUNT
    b, h = tl.load(TEXT + item, mask=real, other=0), tl.load(HEAD + item, mask=real, other=0)
    i, j = tl.load(QUERY + item, mask=real, other=0), tl.load(KEY + item, mask=real, other=0)
    mask = real[:, None] & (dims < D)[None, :]
    q = tl.load(Q + (b * q_b + h * q_h + i * q_n)[:, None] + dims[None, :], mask=mask, other=0.0).to(tl.float32)
    k = tl.load(K + (b * k_b + h // R * k_h + j * k_n)[:, None] + dims[None, :], mask=mask, other=0.0).to(tl.float32)
    lse = tl.load(LSE + (b * H + h) * N + i, mask=real, other=1e30)
    weight = tl.exp2(tl.sum(q * k, 1) * factor - lse)
    norm = tl.load(NORM + (b * H + h) * M + j, mask=real, other=0.0)
    out = OUT + item.to(tl.int64)
    tl.store(out, tl.load(NUMBER + item, mask=real, other=0.0), mask=real)
    tl.store(out + COUNT, weight.to(tl.float64), mask=real)
    tl.store(out + 2 * COUNT, norm.to(tl.float64), mask=real)


def weighed(
    pairs: Pairs, scores: Scores, log_sum: Float[Tensor, "text head query"], norms: Float[Tensor, "text head key"]
) -> Float[Tensor, "what pair"]:
    """Number, weight and norm of every pair, of scores without softcap and bias."""
    query, key = (part if part.stride(-1) == 1 else part.contiguous() for part in (scores.query, scores.key))
    _, heads, queries, keys = scores.shape
    count, dim = len(pairs.number), query.shape[-1]
    out = torch.empty(3, count, dtype=torch.float64, device=query.device)
    if count:
        _weigh[triton.cdiv(count, 32),](
            query, *query.stride()[:3], key, *key.stride()[:3], log_sum, norms.float().contiguous(),
            pairs.text, pairs.head, pairs.query, pairs.key, pairs.number, out,
            scores.scale * 1.4426950408889634, count, heads, heads // key.shape[1], queries, keys, dim,
            DP=triton.next_power_of_2(max(dim, 16)), BLOCK=32,
        )  # fmt: skip
    return out


class DrawnPairs:
    """What may belong to the sample of the pairs of one batch, for all sites whose tokens read each other."""

    number: Tensor
    text: Tensor
    kind: Tensor
    head: Tensor
    query: Tensor
    key: Tensor

    def __init__(self, sample: "PairSample", batch: Batch, tokens: Tokens) -> None:
        self.sample, self.tokens = sample, tokens
        self._batch = ref(batch)  # which holds these pairs
        self.sites: list[Site] = [
            site for site in sample.lens.sites if site.kind == "self" and batch.keys(site) is tokens
        ]
        self.room: list[int] | None = None
        self.outgrown = False
        self._draw()

    def renew(self) -> bool:
        """Draw again for the texts that the batch has now, into the same memory; False if there is too little."""
        return self._draw()

    def _draw(self) -> bool:
        sample, batch, tokens = self.sample, self._batch(), self.tokens
        assert batch is not None
        lens, kinds = sample.lens, sample.kinds
        known = sample.limits_seen
        limits = np.full((len(lens.sites), len(kinds)), np.inf) if known is None else known.read(lens, sample.state)
        host = tokens.on_host
        asked = host.mask.sum(-1).numpy()
        count = torch.stack([(host.categories[name] & host.mask).sum(-1) for name in kinds], 1).numpy()
        heads = np.array([len(lens.numbers[site]) for site in self.sites])
        sizes = heads[:, None, None] * asked[:, None] * count  # [site text kind]
        full = limits[[lens.position[site] for site in self.sites]]  # [site kind]
        bars = np.array([[bar(int(one), sample.size) for one in row] for row in sizes.sum(1)])
        below = np.broadcast_to(np.minimum(full, bars)[:, None], sizes.shape)
        likely = sizes * -np.expm1(-np.minimum(below * UNIT, 700.0))
        # Eight standard deviations more than likely: that a group has more below its bar is not to be expected ever.
        wanted = np.minimum(sizes, (likely + 8 * np.sqrt(likely) + 12).astype(np.int64))
        if sample.keys is None or sample.keys[0] is not batch:
            sample.prepare(batch)
        assert sample.keys is not None
        _, places, every = sample.keys
        keys = every[:, [places.index(site) for site in self.sites]].view(np.int64).transpose(1, 0, 2)
        drawn = wanted.reshape(len(self.sites), -1).sum(1)
        if self.room is None:
            self.room = _room(drawn).tolist()
            self.ends = np.cumsum(self.room).tolist()
        elif (drawn > self.room).any():
            return False
        self.outgrown = bool(4 * _room(drawn).sum() < sum(self.room))
        groups = np.stack([wanted, keys, sizes]).reshape(3, len(self.sites), -1)
        # What is left of each site's room is a group of its own, whose pairs do not count.
        rest = np.stack([self.room - drawn, 0 * drawn, _REST + 0 * drawn])[..., None]
        groups = np.concatenate([groups, rest], -1)
        texts, which = np.indices(sizes.shape[1:]).reshape(2, -1)
        of_group = np.stack([texts, which, asked[texts], count[texts, which]])
        of_group = np.concatenate([of_group, [[0], [0], [1], [1]]], -1)
        bars = np.concatenate([below.reshape(len(self.sites), -1), np.full((len(self.sites), 1), -np.inf)], -1)
        self._put(self._make(groups.reshape(3, -1), np.tile(of_group, len(self.sites)), bars.ravel()))
        return True

    def _make(self, groups: Any, of_group: Any, below: Any) -> dict[str, Tensor]:
        """Number and place of every pair, from how many each group gives, its key and size, its text and kind."""
        device, total = self.tokens.ids.device, self.ends[-1] if self.ends else 0
        half = np.maximum(1, np.ceil(np.log2(np.maximum(groups[2], 2)) / 2)).astype(np.int64)
        begin = np.cumsum(groups[0]) - groups[0]
        table = torch.from_numpy(np.concatenate([groups, [begin, half], of_group])).pin_memory()
        wanted, key, size, start, halves, text, kind, asked, count = table.to(device, non_blocking=True)
        bars = torch.from_numpy(below).pin_memory().to(device, non_blocking=True)
        group = torch.repeat_interleave(wanted, output_size=total)
        bits, index = torch.empty_like(group), torch.empty_like(group)
        if total:
            _draw[triton.cdiv(total, _BLOCK),](group, start, key, size, halves, bits, index, total, BLOCK=_BLOCK)
        rank = torch.arange(total, device=device) - start[group]
        uniform = (bits.double() + 0.5) * 2.0**-53
        step = (-uniform.log() / (size[group] - rank) / UNIT).long() + 1
        sums = torch.cat([step.new_zeros(1), step.cumsum(0)])
        number = (sums[1:] - sums[start[group]]).double()
        read = torch.stack([self.tokens.categories[name] & self.tokens.mask for name in self.sample.kinds], 1)
        places = read.logical_not().to(torch.uint8).sort(stable=True, dim=-1).indices
        asking = self.tokens.mask.logical_not().to(torch.uint8).sort(stable=True, dim=-1).indices
        rest, nth_key = index // count[group].clamp(min=1), index % count[group].clamp(min=1)
        head, nth_query = rest // asked[group].clamp(min=1), rest % asked[group].clamp(min=1)
        text, kind = text[group], kind[group]
        return {
            "number": torch.where(number < bars[group], number, torch.inf),
            "text": text,
            "kind": kind,
            "head": torch.where(size[group] == _REST, 0, head),
            "query": asking[text, nth_query],
            "key": places[text, kind, nth_key],
        }

    def _put(self, made: dict[str, Tensor]) -> None:
        """Into the memory of the first draw, which a recorded pass reads."""
        for name, tensor in made.items():
            old = vars(self).setdefault(name, tensor)
            if old is not tensor:
                old.copy_(tensor)

    def of(self, sample: "PairSample", batch: Batch, tokens: Tokens) -> bool:
        """Whether these are the pairs of this batch."""
        return self.sample is sample and self._batch() is batch and self.tokens is tokens

    def pairs(self, site: Site, scores: Scores) -> Pairs:
        """Those of one site."""
        at = self.sites.index(site)
        mine = slice(self.ends[at - 1] if at else 0, self.ends[at])
        text, head, query, key = (each[mine] for each in (self.text, self.head, self.query, self.key))
        number = self.number[mine]
        if scores.allowed is not None:  # nothing else is hidden: see `padded_only`
            number = torch.where(visible(scores, text, head, query, key), number, torch.inf)
        return Pairs(text, head, query, key, self.kind[mine], number, number)

    def note(self, state: Tensor) -> None:
        """The sample has changed: its new limits set out for this side."""
        self.sample.limits_seen = _Limits(state, self.sample.limits_seen)


def _room(drawn: Int[np.ndarray, " site"]) -> Int[np.ndarray, " site"]:
    """Places for so many pairs, and some more: other texts have more of a kind."""
    return drawn + drawn // 4 + 64


class _Limits:
    """The limits of a sample on their way from the GPU; until they are here, those of before it."""

    def __init__(self, state: Tensor, earlier: "_Limits | None") -> None:
        self.state, self.arrived = state, torch.cuda.Event()
        self.limits = torch.empty(state.shape[1:3], dtype=torch.float64, pin_memory=True)
        self.limits.copy_(state[NUMBER, :, :, -1], non_blocking=True)
        self.arrived.record()
        self.before = np.full(tuple(state.shape[1:3]), np.inf) if earlier is None else earlier.latest()

    def latest(self) -> np.ndarray:
        return self.limits.numpy().copy() if self.arrived.query() else self.before

    def read(self, lens: Any, state: str) -> np.ndarray:
        """Infinite if the sample is not the one that these were read from: it was put back, or moved."""
        return self.latest() if getattr(lens, state) is self.state else np.full_like(self.before, np.inf)
