"""The pairs of all sites of a batch drawn on a GPU at once, without waiting for it; the same pairs as on a CPU.

How many numbers each group may give is reckoned here from the limits of the sample as they were last seen: they only
ever fall, so that what is drawn with an older one has all that belongs to the sample, and a little more.
"""

from collections.abc import Sequence
from typing import no_type_check
from weakref import ref

import numpy as np
import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.attending.scores import Scores
from lorgnette.contributions.pairs import TokenPairs, visible
from lorgnette.errors import Unreplayable
from lorgnette.gpu.recording import Redrawn
from lorgnette.lens.base import Lens
from lorgnette.lens.norms.pair_sample import NUMBER, PairSample, padded_only
from lorgnette.statistics.hash_sample import moved
from lorgnette.statistics.hashing import UNIT, bar, text_keys
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.types import Json

_BLOCK = 256
_REST = 2**40
"""The size of a dummy group, whose pairs do not count."""
_NEVER = int(np.array(-np.inf).view(np.int64))
"""The bits of a bar (a threshold) that no number is below."""
_INTEGERS = ("groups", "per_site", "kinds", "texts", "tokens", "count", "group_steps", "token_steps")
"""These differ from batch to batch; the kernel is compiled once."""


@triton.jit
@no_type_check
def _mixed(bits):
    """`hashing.splitmix64`."""
    bits = bits + 0x9E3779B97F4A7C15
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


@triton.jit
@no_type_check
def _first_above(ROW, value, length, steps, BLOCK: tl.constexpr):
    """The first place of a rising row whose entry is above the value, `length` if there is none; by halving."""
    low, high = tl.full([BLOCK], 0, tl.int32), tl.full([BLOCK], length, tl.int32)
    for _ in range(steps):
        middle, going = (low + high) // 2, low < high
        above = tl.load(ROW + middle, mask=going, other=0) > value
        high = tl.where(going & above, middle, high)
        low = tl.where(going, tl.where(above, low, middle + 1), low)
    return low


@triton.jit(do_not_specialize=_INTEGERS)
@no_type_check
def _draw(
    GROUPS, UP_TO, UNIFORM, DIVISOR, PLACES, groups, per_site, kinds, texts, tokens, count, group_steps, token_steps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Where each pair of each group is, and what its step is made of.

    A pair's place in its group's keyed permutation (`hashing._shuffled`) says head, query and key among those that
    count; `UP_TO` says how many of the tokens up to each one count, as queries and as keys of each kind.
    """
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = item < count
    group = _first_above(GROUPS, item, groups, group_steps, BLOCK) - 1
    rank = (item - tl.load(GROUPS + group)).to(tl.uint64)
    key = tl.load(GROUPS + groups + group).to(tl.uint64, bitcast=True)
    size = tl.load(GROUPS + 2 * groups + group)
    half = tl.load(GROUPS + 3 * groups + group).to(tl.uint64)
    golden = tl.full([BLOCK], 0x9E3779B97F4A7C15, tl.uint64)
    bits = (_mixed(key + golden * rank) >> 11).to(tl.int64)
    tl.store(UNIFORM + item, (bits.to(tl.float64) + 0.5) * 1.1102230246251565e-16, mask=real)  # 2^-53
    tl.store(DIVISOR + item, (size - rank.to(tl.int64)).to(tl.float64) * -7.105427357601002e-15, mask=real)  # −UNIT
    low = (tl.full([BLOCK], 1, tl.uint64) << half) - 1
    out = tl.where(real, rank, 0)
    outside = real
    while tl.max(outside.to(tl.int32), 0) > 0:
        left, right = out >> half, out & low
        for turn in tl.static_range(4):
            mixed = _mixed(key ^ _mixed(right + (turn + 1) * 1099511627776))
            left, right = right, left ^ (mixed & low)
        out = tl.where(outside, (left << half) | right, out)
        outside = real & (out >= size.to(tl.uint64))
    queries, keys = tl.load(GROUPS + 4 * groups + group), tl.load(GROUPS + 5 * groups + group)
    index, place = out.to(tl.int64), group % per_site
    counts = place < per_site - 1  # the last group of a site is what is left of its room
    text, kind = tl.where(counts, place // kinds, 0), tl.where(counts, place % kinds, 0)
    rest = index // keys
    query = _first_above(UP_TO + text * tokens, rest % queries, tokens, token_steps, BLOCK)
    key_row = ((kind + 1) * texts + text) * tokens
    key_at = _first_above(UP_TO + key_row, index % keys, tokens, token_steps, BLOCK)
    out_at = PLACES + item.to(tl.int64)
    tl.store(out_at, text.to(tl.int64), mask=real)
    tl.store(out_at + count, kind.to(tl.int64), mask=real)
    tl.store(out_at + 2 * count, tl.where(counts, rest // queries, 0), mask=real)
    tl.store(out_at + 3 * count, tl.minimum(query, tokens - 1).to(tl.int64), mask=real)
    tl.store(out_at + 4 * count, tl.minimum(key_at, tokens - 1).to(tl.int64), mask=real)


@triton.jit
@no_type_check
def _number(GROUPS, SUMS, NUMBER, groups, count, group_steps, BLOCK: tl.constexpr):
    """Each pair's number: the steps of its group up to it; `SUMS` has them less one each. Infinite from the bar on."""
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = item < count
    group = _first_above(GROUPS, item, groups, group_steps, BLOCK) - 1
    start = tl.load(GROUPS + group)
    before = tl.load(SUMS + start - 1, mask=real & (start > 0), other=0)
    number = (tl.load(SUMS + item, mask=real, other=0) - before + (item - start) + 1).to(tl.float64)
    bar = tl.load(GROUPS + 6 * groups + group).to(tl.float64, bitcast=True)
    tl.store(NUMBER + item, tl.where(number < bar, number, float("inf")), mask=real)


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
    pairs: TokenPairs, scores: Scores, log_sum: Float[Tensor, "text head query"], norms: Float[Tensor, "text head key"]
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


class DrawnPairSample(PairSample, Redrawn):
    """A sample whose pairs are drawn on the GPU, before the pass of a batch; until a call needs another way."""

    def __init__(self, lens: Lens, kinds: Sequence[str], size: int, state: str = "pairs") -> None:
        super().__init__(lens, kinds, size, state)
        self.sites: list[Site] = [site for site in lens.sites if site.kind == "self"]  # whose pairs can be drawn here
        self.keys: tuple[Batch, np.ndarray] | None = None
        self.batch_pairs: DrawnPairs | None = None
        self.limits_seen: _Limits | None = None
        self.draws_ahead: bool = True

    def __getstate__(self) -> Json:
        return {**super().__getstate__(), "batch_pairs": None, "limits_seen": None, "keys": None}

    def begin(self, batch: Batch) -> None:
        if self.batch_pairs is not None:  # the sample has changed: its new limits set out for this side
            self.limits_seen = _Limits(self.lens.states[self.state], self.limits_seen)
        self.prepare(batch)

    def prepare(self, batch: Batch) -> None:
        """Keys of all groups of a batch, before its pass: the GPU has the last batch to work on meanwhile."""
        rests = [(site, kind) for site in self.sites for kind in self.kinds]
        seeds = text_keys([example.id for example in batch.examples], rests)
        self.keys = batch, seeds.reshape(len(batch.examples), len(self.sites), len(self.kinds))
        self._constants()  # now, and not in a pass that is recorded
        if not self.draws_ahead or batch.target is not None:
            return
        known = self._drawn_for(batch)
        if known is None:
            self.batch_pairs = batch.shared[self] = DrawnPairs(self, batch, batch.source)
        elif known.renew():
            self.batch_pairs = known
        else:
            raise Unreplayable

    def _drawn_for(self, batch: Batch) -> "DrawnPairs | None":
        """What was drawn for a batch before: one whose pass was recorded, with other texts in it now."""
        return batch.shared.get(self)

    def too_large(self, batch: Batch) -> bool:
        """Later batches have fewer pairs that may belong to the sample."""
        drawn = self._drawn_for(batch)
        return drawn is not None and drawn.too_large

    def draw(self, call: Call, batch: Batch, site: Site, *, any_order: bool = False) -> TokenPairs:
        self.count(call, batch, site)
        keys = batch.keys(site)
        if any_order and batch.queries(site) is keys and padded_only(call.scores, causal=self.causal):
            if self.batch_pairs is None or not self.batch_pairs.of(self, batch, keys):
                self.batch_pairs = DrawnPairs(self, batch, keys)
            return self.batch_pairs.pairs(site, call.scores)
        self.draws_ahead = False
        return self.drawn(call, batch, site)


class DrawnPairs:
    """What may belong to the sample of the pairs of one batch, for all sites whose tokens read each other."""

    number: Tensor
    text: Tensor
    kind: Tensor
    head: Tensor
    query: Tensor
    key: Tensor

    def __init__(self, sample: DrawnPairSample, batch: Batch, tokens: Tokens) -> None:
        self.sample, self.tokens = sample, tokens
        self._batch = ref(batch)  # which holds these pairs
        lens = sample.lens
        self.sites: list[Site] = [site for site in lens.sites if site.kind == "self" and batch.keys(site) is tokens]
        self._positions = [lens.position[site] for site in self.sites]
        self._columns = [sample.sites.index(site) for site in self.sites]
        self._heads = np.array([len(lens.numbers[site]) for site in self.sites], dtype=np.int64)
        self.room: list[int] | None = None
        self.too_large = False
        self._draw()

    def renew(self) -> bool:
        """Draw again for the texts that the batch has now, into the same memory; False if there is too little."""
        return self._draw()

    def _draw(self) -> bool:
        sample, kinds = self.sample, len(self.sample.kinds)
        known = sample.limits_seen
        limits = np.full((len(sample.lens.sites), kinds), np.inf) if known is None else known.read(sample)
        counting = self._counting(self.tokens.on_host)
        counts = counting.sum(-1, dtype=torch.int32).numpy().astype(np.int64)
        queries, keys = counts[0][:, None], counts[1:].T  # [text 1], [text kind]
        sizes = self._heads[:, None, None] * queries * keys  # [site text kind]
        visible = sizes
        if sample.causal:  # pairs are numbered whether or not the query may see the key: so many of them it may see
            later = counting[0].flip(-1).cumsum(-1).flip(-1)  # the queries from each token on
            seen = (counting[1:] * later).sum(-1).numpy().T  # [text kind]
            visible = self._heads[:, None, None] * seen
        below = np.minimum(limits[self._positions], bar(visible.sum(1), sample.size))[:, None]  # [site 1 kind]
        likely = sizes * -np.expm1(-np.minimum(below * UNIT, 700.0))
        # Eight standard deviations above the mean: no group will ever have more below its bar.
        wanted = np.minimum(sizes, (likely + 8 * np.sqrt(likely) + 12).astype(np.int64))
        drawn = wanted.sum((1, 2))
        if self.room is None:
            self._reserve(_room(drawn))
        assert self.room is not None
        if (drawn > self.room).any():
            return False
        self.too_large = bool(4 * _room(drawn).sum() < sum(self.room))
        self._make(self._table(wanted, sizes, queries, keys, below))
        return True

    def _table(
        self,
        wanted: Int[np.ndarray, "site text kind"],
        sizes: Int[np.ndarray, "site text kind"],
        queries: Int[np.ndarray, "text 1"],
        keys: Int[np.ndarray, "text kind"],
        below: Float[np.ndarray, "site 1 kind"],
    ) -> Int[np.ndarray, "what group"]:
        """What is known of each group: its first pair, key, size, half its bits, its queries, its keys, its bar."""
        half = np.ceil(np.log2(np.maximum(sizes, 2)) / 2)
        bars = np.ascontiguousarray(below).view(np.int64)
        rows = (wanted, self._keys(), sizes, half, np.maximum(queries, 1), np.maximum(keys, 1), bars)
        groups = np.empty((len(rows), len(sizes), keys.size + 1), dtype=np.int64)
        for row, values in zip(groups, rows, strict=True):
            row[:, :-1] = np.broadcast_to(values, sizes.shape).reshape(len(sizes), -1)
        # What is left of each site's room is a group of its own, whose pairs do not count.
        groups[:, :, -1] = np.array([0, 0, _REST, _REST.bit_length() // 2, 1, 1, _NEVER])[:, None]
        groups[0, :, -1] = self.room - wanted.sum((1, 2))
        flat = groups.reshape(len(rows), -1)
        flat[0] = np.cumsum(flat[0]) - flat[0]
        return flat

    def _keys(self) -> Int[np.ndarray, "site text kind"]:
        batch = self._batch()
        assert batch is not None
        if self.sample.keys is None or self.sample.keys[0] is not batch:
            self.sample.prepare(batch)
        assert self.sample.keys is not None
        return self.sample.keys[1][:, self._columns].view(np.int64).transpose(1, 0, 2)

    def _counting(self, tokens: Tokens) -> Bool[Tensor, "what text token"]:
        """Which tokens count: as queries, and as keys of each kind."""
        mask, categories = tokens.mask, tokens.categories
        return torch.stack([mask, *(categories[name] for name in self.sample.kinds)]).logical_and_(mask)

    def _reserve(self, room: Int[np.ndarray, " site"]) -> None:
        """The memory of all draws, which a recorded pass reads."""
        self.room, self.ends = room.tolist(), np.cumsum(room).tolist()
        total, device = self.ends[-1] if self.ends else 0, self.tokens.ids.device
        self._places = torch.empty(5, total, dtype=torch.int64, device=device)
        self.text, self.kind, self.head, self.query, self.key = self._places
        self.number = torch.empty(total, dtype=torch.float64, device=device)

    def _make(self, table: Int[np.ndarray, "what group"]) -> None:
        """Number and place of every pair, from what is known of its group."""
        total, groups = len(self.number), table.shape[1]
        if not total:
            return
        device, (texts, tokens) = self.number.device, self.tokens.mask.shape
        on_chip = moved(torch.from_numpy(table), device)
        up_to = self._counting(self.tokens).cumsum(-1, dtype=torch.int32)
        uniform, divisor = torch.empty_like(self.number), torch.empty_like(self.number)
        grid, steps = (triton.cdiv(total, _BLOCK),), groups.bit_length()
        _draw[grid](
            on_chip, up_to, uniform, divisor, self._places, groups, groups // len(self.sites), len(self.sample.kinds),
            texts, tokens, total, steps, tokens.bit_length(), BLOCK=_BLOCK,
        )  # fmt: skip
        sums = uniform.log_().div_(divisor).cumsum(0, dtype=torch.int64)
        _number[grid](on_chip, sums, self.number, groups, total, steps, BLOCK=_BLOCK)

    def of(self, sample: PairSample, batch: Batch, tokens: Tokens) -> bool:
        """Whether these pairs were drawn for this batch."""
        return self.sample is sample and self._batch() is batch and self.tokens is tokens

    def pairs(self, site: Site, scores: Scores) -> TokenPairs:
        """The pairs of one site."""
        at = self.sites.index(site)
        mine = slice(self.ends[at - 1] if at else 0, self.ends[at])
        text, head, query, key = (each[mine] for each in (self.text, self.head, self.query, self.key))
        number = self.number[mine]
        if scores.hides:
            number = torch.where(visible(scores, text, head, query, key), number, torch.inf)
        return TokenPairs(text, head, query, key, self.kind[mine], number, number)


def _room(drawn: Int[np.ndarray, " site"]) -> Int[np.ndarray, " site"]:
    """Allocate for this many pairs and some more: the next texts may have more pairs of a kind."""
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

    def read(self, sample: PairSample) -> np.ndarray:
        """Infinite if the limits belong to another sample, because the states were restored or moved."""
        return self.latest() if getattr(sample.lens, sample.state) is self.state else np.full_like(self.before, np.inf)
