"""Which word each piece of a text belongs to, for every kind of tokenizer."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, UInt32

from lorgnette.texts.sides import Sequences, WordMap, WordSpans
from lorgnette.texts.word_forms import codes_of

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

Offsets = Sequence[tuple[int, int]]
"""Where each piece begins and ends in its text."""


def word_maps(cuts: "Sequence[Encoding]", texts: Sequence[Sequences]) -> list[WordMap]:
    """The word maps of texts and pairs, some with given words, from how they were cut.

    What the tokenizer adds to a text has no word, so that nobody need ask for its special tokens. The words of a pair
    are numbered through: those of the text, then those of its second text.
    """
    halves = [
        (number, which, text, words)
        for number, both in enumerate(texts)
        for which, (text, words) in enumerate(((both.text, both.words), (both.pair, both.pair_words)))
        if text is not None
    ]
    free = [(number, which, text) for number, which, text, words in halves if words is None]
    found = by_tokenizer(
        [text for _, _, text in free],
        [_numbers(cuts[number], which, texts[number]) for number, which, _ in free],
        (cuts[number].offsets for number, _, _ in free),
    )
    maps = {(number, which): own for (number, which, _), own in zip(free, found, strict=True)}
    for number, which, _, words in halves:
        if words is not None:
            placed = by_offset(cuts[number].offsets, cuts[number].sequence_ids, words, which)
            maps[number, which] = placed, WordSpans.of(words, " ")
    return [
        maps[number, 0] if both.pair is None else _numbered_through(maps[number, 0], maps[number, 1])
        for number, both in enumerate(texts)
    ]


def _numbers(cut: "Encoding", which: int, text: Sequences) -> Sequence[int | None]:
    """The tokenizer's word of each piece of the first or second text; None for pieces of the other."""
    if text.pair is None:
        return cut.word_ids
    owned = zip(cut.word_ids, cut.sequence_ids, strict=True)
    return [number if owner == which else None for number, owner in owned]


def _numbered_through(first: WordMap, second: WordMap) -> WordMap:
    (word, words), (more, others) = first, second
    return np.where(more >= 0, more + len(words), word), words.followed_by(others)


def by_tokenizer(
    texts: Sequence[str], numbers: Sequence[Sequence[int | None]], offsets: Iterable[Offsets]
) -> list[WordMap]:
    """The words of each text, numbered from 0 in order, and their places, from the tokenizer's number for each piece.

    A piece without a number has no word. Llama and Gemma cut nothing before their pieces, and their tokenizers call a
    whole text one word; so a word of theirs also ends where there is white space. No word begins or ends with it.

    Many texts are worked out together: it is short work on long arrays, and most of it lets other threads run.
    """
    pieces, long = (np.array([len(row) for row in rows], dtype=np.int64) for rows in (numbers, texts))
    given = np.fromiter(chain.from_iterable(numbers), np.float64, pieces.sum())  # None becomes NaN
    places = np.fromiter(chain.from_iterable(chain.from_iterable(offsets)), np.int64, 2 * len(given)).reshape(-1, 2)
    inside = np.flatnonzero(~np.isnan(given))
    text = np.repeat(np.arange(len(texts)), pieces)[inside]
    codes, last = codes_of("".join(texts)), np.cumsum(long)
    first, most = (last - long)[text], last[text]  # of a piece's text the first character, and the one behind it
    start, end = (np.minimum(places[inside, column] + first, most) for column in (0, 1))
    word, begins = _numbered(text, given[inside].astype(np.int64), first, end, codes)
    opened, closed = start[begins], np.zeros(len(begins), dtype=np.int64)
    np.maximum.at(closed, word, end)
    opened, closed = (edge - first[begins] for edge in _trimmed(codes, opened, np.maximum(opened, closed)))
    words = np.bincount(text[begins], minlength=len(texts))
    out = np.full(len(given), -1)
    out[inside] = word - (np.cumsum(words) - words)[text]
    owners, found = (list(pairwise([0, *np.cumsum(sizes).tolist()])) for sizes in (pieces, words))
    return [
        (out[a:b], WordSpans(name, opened[c:d], closed[c:d]))
        for name, (a, b), (c, d) in zip(texts, owners, found, strict=True)
    ]


def _numbered(
    text: Int[np.ndarray, " piece"], number: Int[np.ndarray, " piece"], first: Int[np.ndarray, " piece"],
    end: Int[np.ndarray, " piece"], codes: UInt32[np.ndarray, " character"],
) -> tuple[Int[np.ndarray, " piece"], Int[np.ndarray, " word"]]:  # fmt: skip
    """The word of each piece, counted through all texts, and the piece that each word begins with."""
    place = text * (number.max(initial=0) + 1) + number
    if (np.diff(place) <= 0).any():  # words of several pieces: white space may lie between them
        run = _runs(codes)
        place = place * (run[-1] + 1) + run[np.maximum(end - 1, first)]
    step = np.diff(place, prepend=-1)
    if (step >= 0).all():
        begins = step != 0
        return np.cumsum(begins) - 1, np.flatnonzero(begins)
    # A word that comes back is the same word.
    _, opening, which = np.unique(place, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(opening))[which], np.sort(opening)


def _trimmed(
    codes: UInt32[np.ndarray, " character"], start: Int[np.ndarray, " word"], stop: Int[np.ndarray, " word"]
) -> tuple[Int[np.ndarray, " word"], Int[np.ndarray, " word"]]:
    """These parts of a text without white space around them; one that has nothing else is empty."""
    full = np.flatnonzero(stop > start)
    if not (_is_space(codes[start[full]]) | _is_space(codes[stop[full] - 1])).any():
        return start, stop
    solid = np.flatnonzero(~_is_space(codes))
    before = np.searchsorted(solid, start)  # characters before the part that are no space
    behind = np.maximum(np.searchsorted(solid, stop), before)
    kept = behind > before
    opened, closed = start.copy(), start.copy()
    opened[kept], closed[kept] = solid[before[kept]], solid[behind[kept] - 1] + 1
    return opened, closed


_IS_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])
"""White space by character code; there is none beyond this table."""


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
) -> Int[np.ndarray, " piece"]:
    """The given word that each piece ends in, for text made of these words with a space between; else −1.

    A piece without a place of its own goes with the one before it.
    """
    mine = np.array([o == which for o in owner], dtype=bool)
    if not words:
        return np.full(len(mine), -1)
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    start, end = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    number = np.minimum(np.searchsorted(ends, end), len(words) - 1)
    number = np.maximum.accumulate(np.where(mine & (end > start), number, 0))
    return np.where(mine, number, -1)


def spoken(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int], prompt: Sequence[int] = ()
) -> tuple[str, list[int]]:
    """The text that the ids add to the prompt, and where each of them ends in it."""
    said = [_decoded(tokenizer, [*prompt, *ids[:count]]) for count in range(len(ids) + 1)]
    before = said[0]
    if not said[-1].startswith(before):  # the prompt ended within a character
        said = [_decoded(tokenizer, ids[:count]) for count in range(len(ids) + 1)]
        before = ""
    ends = [min(max(len(text) - len(before), 0), len(said[-1]) - len(before)) for text in said[1:]]
    for number, (earlier, later) in enumerate(pairwise(ends)):
        ends[number + 1] = max(earlier, later)
    return said[-1][len(before) :], ends


def _decoded(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def runs_of(text: str, ends: Sequence[int]) -> list[int]:
    """For each piece, by where it ends in the text, the number of its run between white space."""
    begins = [not now.isspace() and before.isspace() for before, now in pairwise(f" {text}")]
    run = list(accumulate(begins))  # of each character; white space belongs to the run before it
    out = []
    for start, end in pairwise([0, *ends]):
        inside = [at for at in range(start, end) if not text[at].isspace()]
        # A piece without a character of its own (white space, a part of a character) goes with what follows it.
        at = inside[-1] if inside else next((k for k in range(end, len(text)) if not text[k].isspace()), len(text) - 1)
        out.append(run[at] - 1 if text else 0)
    return out
