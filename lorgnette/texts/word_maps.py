"""Which word each piece of a text belongs to, for every kind of tokenizer."""

from itertools import chain

import numpy as np
from jaxtyping import Int


def by_tokenizer(
    ids: list[int | None], owner: list[int | None], offsets: list[tuple[int, int]], which: int, text: str
) -> tuple[list[int], list[str]]:
    """Words numbered from 0 in order, and their text.

    Llama and Gemma cut nothing before their pieces, and their tokenizers call a whole text one word; so a word of
    theirs also ends where there is white space.
    """
    word = np.array([-1 if number is None else number for number in ids], dtype=np.int64)
    inside = (word >= 0) & np.array([o == which for o in owner], dtype=bool)
    start, end = np.fromiter(chain.from_iterable(offsets), np.int64, 2 * len(offsets)).reshape(-1, 2)[inside].T
    run = _runs(text)
    place = word[inside] * (run[-1] + 1) + run[np.clip(end - 1, 0, len(run) - 1)]
    begins = np.diff(place, prepend=-1) != 0
    if (np.diff(place) < 0).any():  # a word that comes back is the same word
        _, first = np.unique(place, return_inverse=True)
        begins = np.isin(np.arange(len(place)), np.unique(place, return_index=True)[1])
        rank = np.empty(begins.sum(), dtype=np.int64)
        rank[first[begins]] = np.arange(len(rank))
        number = rank[first]
    else:
        number = np.cumsum(begins) - 1
    out = np.full(len(word), -1)
    out[inside] = number
    opened, closed = start[begins], np.zeros(int(begins.sum()), dtype=np.int64)
    np.maximum.at(closed, number, end)
    names = map(text.__getitem__, map(slice, opened.tolist(), closed.tolist()))
    return out.tolist(), list(map(str.strip, names))


_IS_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])
"""By code; no space lies beyond."""


def _runs(text: str) -> Int[np.ndarray, " place"]:
    """For each character the number of its run between white space; white space belongs to the run behind it."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    space = _IS_SPACE[np.minimum(codes, len(_IS_SPACE) - 1)]
    begins = space.copy()
    begins[1:] &= ~space[:-1]
    begins[:1] = False
    runs = np.cumsum(begins)
    return np.append(runs, runs[-1] if len(runs) else 0)


def by_offset(
    offsets: list[tuple[int, int]], owner: list[int | None], words: tuple[str, ...], which: int = 0
) -> list[int]:
    """The given word that each piece ends in, for text made of these words with a space between; else −1.

    A piece without a place of its own goes with the one before it.
    """
    mine = np.array([o == which for o in owner], dtype=bool)
    if not words:
        return [-1] * len(mine)
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    start, end = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    number = np.minimum(np.searchsorted(ends, end), len(words) - 1)
    number = np.maximum.accumulate(np.where(mine & (end > start), number, 0))
    return np.where(mine, number, -1).tolist()
