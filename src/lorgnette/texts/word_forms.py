"""Numbers for the forms of words, found without making a string of every word."""

import re
from collections.abc import Sequence
from functools import lru_cache
from threading import Lock

import numpy as np
from jaxtyping import Int, UInt32, UInt64

from lorgnette.statistics.hashing import text_key
from lorgnette.texts.sides import WordSpans

_STEP = 0x9FB21C651E98DF25
_BACK = pow(_STEP, -1, 2**64)
_SPREAD = 0x9E3779B97F4A7C15


@lru_cache(maxsize=2**16)
def word_number(word: str) -> int:
    """48 random bits that depend on the word alone, whatever its case."""
    return text_key("word", word.lower()) >> 16


def form_numbers(words: Sequence[WordSpans]) -> Int[np.ndarray, " word"]:
    """The number of each word of some texts, one text behind the other; −1 for one without a letter or digit."""
    joined = "".join(one.text for one in words)
    long, many = (np.array(sizes, dtype=np.int64) for sizes in ([len(one.text) for one in words], [*map(len, words)]))
    before = np.repeat(np.cumsum(long) - long, many)
    start, stop = (
        np.concatenate([np.zeros(0, dtype=np.int64), *column]) + before
        for column in ([one.start for one in words], [one.stop for one in words])
    )
    return _FORMS.of(joined, start, stop)


class Forms:
    """The numbers of words that were met, in a table of 2^`bits` places; a word may take the place of another."""

    def __init__(self, bits: int) -> None:
        self.shift = np.uint64(64 - bits)
        self.key: UInt64[np.ndarray, " place"] = np.zeros(2**bits, dtype=np.uint64)
        self.number: Int[np.ndarray, " place"] = np.full(2**bits, -1)  # a word without characters has the key 0
        self.lock = Lock()  # a key and its number are written one after the other

    def of(
        self, joined: str, start: Int[np.ndarray, " word"], stop: Int[np.ndarray, " word"]
    ) -> Int[np.ndarray, " word"]:
        """The forms of the words at these places of a text. Only those that are not in the table become strings."""
        key = _keys(codes_of(joined), start, stop)
        place = (key >> self.shift).astype(np.int64)
        with self.lock:
            out = self.number[place]
            new = np.flatnonzero(self.key[place] != key)
            if len(new):
                distinct, first, which = np.unique(key[new], return_index=True, return_inverse=True)
                first = new[first]
                names = map(joined.__getitem__, map(slice, start[first].tolist(), stop[first].tolist()))
                number = np.array([_number(name) for name in names])
                out[new] = number[which]
                self.key[place[first]], self.number[place[first]] = distinct, number
        return out


_FORMS = Forms(bits=18)


def _number(word: str) -> int:
    return word_number(word) if re.search(r"\w", word) else -1


def codes_of(text: str) -> UInt32[np.ndarray, " character"]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _keys(
    codes: UInt32[np.ndarray, " character"], start: Int[np.ndarray, " word"], stop: Int[np.ndarray, " word"]
) -> UInt64[np.ndarray, " word"]:
    """64 bits that depend on the characters of each word: Σ (c + 1) s^i for its i-th character c, modulo 2^64.

    From sums over the whole text: that is little work, all of it in arrays, and it lets other threads run. That two of
    the words met share their bits is less likely than that their numbers, of 48 bits, do.
    """
    terms = codes.astype(np.uint64)
    terms += np.uint64(1)
    terms *= _powers(_SPREAD, _STEP, len(codes))
    sums = np.zeros(len(codes) + 1, dtype=np.uint64)
    np.cumsum(terms, out=sums[1:])
    return (sums[stop] - sums[start]) * _powers(1, _BACK, len(codes) + 1)[start]


def _powers(first: int, step: int, count: int) -> UInt64[np.ndarray, " power"]:
    """first · step^n, modulo 2^64."""
    out = np.full(count, step, dtype=np.uint64)
    out[:1] = first
    return np.multiply.accumulate(out, out=out)
