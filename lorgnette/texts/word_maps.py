"""Which word each piece of a text belongs to, for every kind of tokenizer."""

from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, UInt32

from lorgnette.texts.sides import WordMap

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import BatchEncoding

Offsets = Sequence[tuple[int, int]]
"""Where each piece begins and ends in its text."""


def word_maps(cuts: "Sequence[Encoding]", texts: Sequence[tuple[str, tuple[str, ...] | None]]) -> list[WordMap]:
    """The word maps of texts without pairs, some with given words, from how they were cut.

    What the tokenizer adds to a text has no word, so that nobody need ask for its special tokens.
    """
    free = [number for number, (_, words) in enumerate(texts) if words is None]
    found = by_tokenizer(
        [texts[number][0] for number in free],
        [cuts[number].word_ids for number in free],
        (cuts[number].offsets for number in free),
    )
    maps = dict(zip(free, found, strict=True))
    for number, (cut, (_, words)) in enumerate(zip(cuts, texts, strict=True)):
        if words is not None:
            maps[number] = by_offset(cut.offsets, cut.sequence_ids, words), words
    return [maps[number] for number in range(len(texts))]


def of_sequence(encoding: "BatchEncoding", which: int, text: str) -> WordMap:
    """The words of one text of a pair."""
    owned = zip(encoding.word_ids(), encoding.sequence_ids(), strict=True)
    numbers = [number if owner == which else None for number, owner in owned]
    return by_tokenizer([text], [numbers], [encoding["offset_mapping"]])[0]


def by_tokenizer(
    texts: Sequence[str], numbers: Sequence[Sequence[int | None]], offsets: Iterable[Offsets]
) -> list[WordMap]:
    """The words of each text, numbered from 0 in order, and their text, from the tokenizer's number for each piece.

    A piece without a number has no word. Llama and Gemma cut nothing before their pieces, and their tokenizers call a
    whole text one word; so a word of theirs also ends where there is white space.

    Many texts are worked out together: it is short work on long arrays, and most of it lets other threads run.
    """
    given = np.fromiter(chain.from_iterable(numbers), np.float64)  # None becomes NaN
    places = np.fromiter(chain.from_iterable(chain.from_iterable(offsets)), np.int64).reshape(-1, 2)
    inside = ~np.isnan(given)
    pieces, long = (np.array([len(row) for row in rows], dtype=np.int64) for rows in (numbers, texts))
    text = np.repeat(np.arange(len(texts)), pieces)[inside]
    joined = "".join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    first, most = np.cumsum(long) - long, long[text]  # of a text the first character; how many it has
    start, end = (np.minimum(column, most) + first[text] for column in places[inside].T)
    word, begins = _numbered(text, given[inside].astype(np.int64), first[text], end, codes)
    opened, closed = start[begins], np.zeros(int(begins.sum()), dtype=np.int64)
    np.maximum.at(closed, word, end)
    names = _slices(joined, codes, opened, closed)
    words = np.bincount(text[begins], minlength=len(texts))
    before = np.cumsum(words) - words
    out = np.full(len(given), -1)
    out[inside] = word - before[text]
    whole, stop = out.tolist(), np.cumsum(pieces)
    return [
        (whole[a:b], tuple(names[c:d]))
        for a, b, c, d in zip(*map(np.ndarray.tolist, (stop - pieces, stop, before, before + words)), strict=True)
    ]


def _numbered(
    text: Int[np.ndarray, " piece"], number: Int[np.ndarray, " piece"], first: Int[np.ndarray, " piece"],
    end: Int[np.ndarray, " piece"], codes: UInt32[np.ndarray, " character"],
) -> tuple[Int[np.ndarray, " piece"], Bool[np.ndarray, " piece"]]:  # fmt: skip
    """The word of each piece, counted through all texts, and the pieces that a word begins with."""
    place = text * (number.max(initial=0) + 1) + number
    if (np.diff(place) <= 0).any():  # words of several pieces: white space may lie between them
        run = _runs(codes)
        place = place * (run[-1] + 1) + run[np.maximum(end - 1, first)]
    step = np.diff(place, prepend=-1)
    if (step >= 0).all():
        begins = step != 0
        return np.cumsum(begins) - 1, begins
    # A word that comes back is the same word.
    _, opening, which = np.unique(place, return_index=True, return_inverse=True)
    begins = np.zeros(len(place), dtype=bool)
    begins[opening] = True
    return (np.cumsum(begins) - 1)[opening][which], begins


def _slices(
    joined: str,
    codes: UInt32[np.ndarray, " character"],
    start: Int[np.ndarray, " word"],
    stop: Int[np.ndarray, " word"],
) -> list[str]:
    """These parts of a text, without white space around them: put behind one another and split at once."""
    if not len(start):
        return []
    between = next(code for code in count() if chr(code) not in joined)
    wide = np.maximum(stop - start, 0) + 1
    behind = np.cumsum(wide)
    place = np.repeat(start - behind + wide, wide) + np.arange(behind[-1])
    picked = np.append(codes, np.uint32(between))[place]
    picked[behind - 1] = between
    parts = picked.tobytes().decode("utf-32-le", "surrogatepass").split(chr(between))[:-1]
    spaced = _is_space(picked[behind - wide]) | _is_space(picked[np.maximum(behind - 2, 0)])
    return list(map(str.strip, parts)) if spaced.any() else parts


_IS_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])
"""By code; no space lies beyond."""


def _is_space(codes: UInt32[np.ndarray, " place"]) -> Bool[np.ndarray, " place"]:
    return _IS_SPACE[np.minimum(codes, len(_IS_SPACE) - 1)]


def _runs(codes: UInt32[np.ndarray, " character"]) -> Int[np.ndarray, " place"]:
    """For each character the number of its run between white space; white space belongs to the run behind it."""
    space = _is_space(codes)
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
