"""A bounded random sample that does not depend on the order of its items: the k with the smallest hashes.

Every item has a random number that depends on nothing but the item. A sample of all items of all texts is the k items
whose numbers are smallest; samples of parts merge into the sample of the whole, in any order, exactly.

Millions of pairs need not be numbered to know which are smallest. The items of one group (the pairs of one text, say)
are shuffled by a keyed permutation, and the numbers of the first, second, … are the order statistics of as many
exponential variables: x_(r) = Σ_{s ≤ r} E_s / (N − s + 1) (Rényi 1953). So only the few below the bar are ever made.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Integer, UInt64

# Numbers are counted in this unit: whole, so that sums of them are exact however they are grouped, and below 2^53.
UNIT = 2.0**-47
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 8192  # items that go through the permutation together: they stay in the cache


def text_key(*parts: object) -> int:
    """A 64-bit hash of all parts."""
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()[:8], "little")


def text_keys(names: Sequence[str], rests: Sequence[Sequence[object]]) -> UInt64[np.ndarray, "name rest"]:
    """`text_key` of every name with every rest."""
    tails = ["".join(f"\x1f{part}" for part in rest).encode() for rest in rests]
    # One call for each key: a hash that was begun is copied more slowly than a short text is hashed again.
    begun = [str(name).encode() for name in names]
    digests = b"".join([hashlib.sha256(start + tail).digest() for start in begun for tail in tails])
    return np.frombuffer(digests, dtype="<u8")[::4].astype(np.uint64).reshape(len(begun), len(tails))


def drawn(
    keys: Integer[np.ndarray, " group"], sizes: Integer[np.ndarray, " group"], below: Float[np.ndarray, " group"]
) -> tuple[Integer[np.ndarray, " item"], Integer[np.ndarray, " item"], Float[np.ndarray, " item"]]:
    """The items of each group whose number is below the group's bar: (group, item's index in its group, number)."""
    sizes = sizes.astype(np.int64)
    likely = sizes * -np.expm1(-np.minimum(below * UNIT, 700.0))
    wanted = np.minimum(sizes, (likely + 6 * np.sqrt(likely) + 4).astype(np.int64))
    while True:
        group, order, number = _order_statistics(keys, sizes, wanted)
        last = np.zeros(len(sizes))
        np.maximum.at(last, group, number)
        short = (wanted < sizes) & (last < below)
        if not short.any():
            break
        wanted = np.where(short, np.minimum(sizes, 2 * wanted + 1), wanted)
    below_bar = number < below[group]
    group, order, number = group[below_bar], order[below_bar], number[below_bar]
    return group, _shuffled(order, group, sizes, keys), number


def bar(size: Integer[np.ndarray, "*group"], wanted: int) -> Float[np.ndarray, "*group"]:
    """Bars below which slightly more than `wanted` of `size` items are expected; infinite for small sizes."""
    share = (wanted + 6 * wanted**0.5 + 8) / np.maximum(size, 1)
    few = share >= 0.95
    return np.where(few, np.inf, -np.log1p(-np.where(few, 0.0, share)) / UNIT)


def _order_statistics(keys: np.ndarray, sizes: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, ...]:
    """For each group the first `wanted` order statistics of its numbers: (group, rank from 0, number)."""
    group = np.repeat(np.arange(len(sizes)), wanted)
    start = np.cumsum(wanted) - wanted
    rank = np.arange(len(group)) - start[group]
    uniform = ((splitmix64(keys[group] + _GOLDEN * rank.astype(np.uint64)) >> np.uint64(11)) + 0.5) * 2.0**-53
    step = (-np.log(uniform) / (sizes[group] - rank) / UNIT).astype(np.int64) + 1  # whole numbers, none equal
    total = np.cumsum(step)
    before = np.concatenate([[0], total])[start]  # of the groups before; exact in integers
    return group, rank, (total - before[group]).astype(np.float64)


def _shuffled(index: np.ndarray, group: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """A keyed permutation of 0 … size − 1 for each group: a Feistel network on the next power of four.

    A result outside the range goes through the network again until it is inside (cycle walking).
    """
    halves = np.maximum(1, np.ceil(np.log2(np.maximum(sizes, 2)) / 2)).astype(np.uint64)
    size, key, half = sizes.astype(np.uint64)[group], keys[group], halves[group]
    out, place, walked = np.empty_like(size), np.arange(len(size)), index.astype(np.uint64)
    while len(place):
        pieces = (slice(start, start + _PIECE) for start in range(0, len(place), _PIECE))
        walked = np.concatenate([_walked(walked[some], key[some], half[some]) for some in pieces])
        out[place] = walked
        outside = np.flatnonzero(walked >= size)
        place, walked = place[outside], walked[outside]
        size, key, half = size[outside], key[outside], half[outside]
    return out.astype(np.int64)


def _walked(index: np.ndarray, key: np.ndarray, half: np.ndarray) -> np.ndarray:
    """One pass through the network, whose two halves have this many bits."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = index >> half, index & mask
    for turn in range(4):
        bits = splitmix64(key ^ splitmix64(right + (np.uint64(turn + 1) << np.uint64(40))))
        left, right = right, left ^ (bits & mask)
    return (left << half) | right


def splitmix64(bits: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit given."""
    bits = bits + _GOLDEN
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
