"""Word occurrences with their random numbers and vectors, for how alike the occurrences of one word are."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, compress

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.statistics.hash_sample import moved
from lorgnette.statistics.hashing import mixed, text_key
from lorgnette.texts.batch import Tokens


@lru_cache(maxsize=2**16)
def word_number(word: str) -> int:
    """48 random bits that depend on the word alone, whatever its case."""
    return text_key("word", word.lower()) >> 16


_MOST_FORMS = 2**18
_FORMS: dict[str, int] = {}
"""The number of each word that was met; −1 for one without a letter or digit."""


def _form_numbers(words: Sequence[Sequence[str]]) -> Int[np.ndarray, " word"]:
    """Of all words of some texts. Words that were met cost one look into a table each."""
    numbers = np.fromiter(map(_FORMS.get, chain.from_iterable(words)), np.float64)  # below 2⁴⁸; None becomes NaN
    unknown = np.isnan(numbers)
    if not unknown.any():
        return numbers.astype(np.int64)
    if len(_FORMS) >= _MOST_FORMS:
        _FORMS.clear()
    new = list(compress(chain.from_iterable(words), unknown.tolist()))
    _FORMS.update({form: word_number(form) if re.search(r"\w", form) else -1 for form in set(new)})
    numbers[unknown] = [_FORMS[form] for form in new]
    return numbers.astype(np.int64)


def occurrences(
    tokens: Tokens, ids: Sequence[str], stack: str
) -> tuple[Int[Tensor, "item 2"], Int[Tensor, " item"], Int[Tensor, " item"]]:
    """Every word in the batch that is not punctuation: (text, word), the number of its form, and its own."""
    word = tokens.on_host.word.numpy()
    many = np.array([len(words) for words in tokens.words], dtype=np.int64)
    before = np.cumsum(many) - many
    present = np.zeros(int(many.sum()) + 1, dtype=bool)  # by word of the batch; what has no word is the last
    present[np.where(word >= 0, before[:, None] + word, -1)] = True
    forms = _form_numbers(tokens.words)
    where = np.flatnonzero(present[:-1] & (forms >= 0))
    text = np.repeat(np.arange(len(word)), many)[where]
    number = where - before[text]
    keys = np.array([text_key(name, stack) for name in ids], dtype=np.uint64)
    items = (mixed(keys[text] ^ mixed(number.astype(np.uint64))) >> np.uint64(16)).astype(np.int64)
    return torch.from_numpy(np.stack([text, number], 1)), torch.from_numpy(forms[where]), torch.from_numpy(items)


def smallest_of_each(text: Int[Tensor, " item"], items: Int[Tensor, " item"]) -> Int[Tensor, " text"]:
    """Where the smallest item of each text stands; items are in the order of the texts."""
    texts, values = text.numpy(), items.numpy()
    starts = np.flatnonzero(np.diff(texts, prepend=-1))
    least = np.repeat(np.minimum.reduceat(values, starts), np.diff(starts, append=len(values)))
    found = np.flatnonzero(values == least)
    return torch.from_numpy(found[np.diff(texts[found], prepend=-1) != 0])


def word_vectors(
    tokens: Tokens, where: Int[Tensor, "item 2"], states: Sequence[Float[Tensor, "batch token width"]]
) -> Float[Tensor, "item all_states"]:
    """The mean over the pieces of each word, of every state in turn, where the states are."""
    word, rows = tokens.on_host.word.numpy(), where.numpy()
    # A table from (text, word) to row, read at every token; −1, no word, reads its last column.
    table = np.full((len(word), int(word.max(initial=-1)) + 2), -1)
    table[rows[:, 0], rows[:, 1]] = np.arange(len(rows))
    row = table[np.arange(len(word))[:, None], word].ravel()
    place = np.flatnonzero(row >= 0)
    pieces = np.maximum(np.bincount(row[place], minlength=len(rows)), 1)
    device = states[0].device
    to, at, count = (moved(torch.from_numpy(each), device) for each in (row[place], place, pieces))
    vectors = torch.stack([state.flatten(0, 1).index_select(0, at) for state in states])
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    sums = vectors.new_zeros(len(states), len(rows), vectors.shape[-1]).index_add_(1, to, vectors)
    return (sums / count[:, None]).transpose(0, 1).flatten(1)
