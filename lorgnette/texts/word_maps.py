"""Which word each piece of a text belongs to, for every kind of tokenizer."""

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
    inside = (word >= 0) & (np.array([-1 if o is None else o for o in owner]) == which)
    start, end = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    run = _runs(text)
    place = word * (run[-1] + 1) + run[np.clip(end - 1, 0, len(run) - 1)]
    _, first, group = np.unique(place[inside], return_index=True, return_inverse=True)
    order = np.argsort(first)  # words in the order of the text
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    out = np.full(len(word), -1)
    out[inside] = number[group]
    opened, closed = start[inside][first[order]], np.zeros(len(order), dtype=np.int64)
    np.maximum.at(closed, out[inside], end[inside])
    return out.tolist(), [text[a:b].strip() for a, b in zip(opened.tolist(), closed.tolist(), strict=True)]


_SPACES = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)


def _runs(text: str) -> Int[np.ndarray, " place"]:
    """For each character the number of its run between white space; white space belongs to the run behind it."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    space = np.isin(codes, _SPACES)
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
