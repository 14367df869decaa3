"""Word occurrences with their random numbers and vectors, for how alike the occurrences of one word are."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.statistics.hashing import mixed, text_key
from lorgnette.texts.batch import Tokens


@lru_cache(maxsize=2**16)
def word_number(word: str) -> int:
    """48 random bits that depend on the word alone, whatever its case."""
    return text_key("word", word.lower()) >> 16


class _FormNumbers(dict[str, int]):
    """The number of each word that was met; −1 for one without a letter or digit."""

    def __missing__(self, form: str) -> int:
        if len(self) >= _MOST_FORMS:
            self.clear()
        self[form] = word_number(form) if re.search(r"\w", form) else -1
        return self[form]


_MOST_FORMS = 2**18
_FORMS = _FormNumbers()


def occurrences(
    tokens: Tokens, ids: Sequence[str], stack: str
) -> tuple[Int[Tensor, "item 2"], Int[Tensor, " item"], Int[Tensor, " item"]]:
    """Every word in the batch that is not punctuation: (text, word), the number of its form, and its own."""
    word = tokens.on_host.word.numpy()
    wide = int(word.max(initial=-1)) + 1
    where = np.unique((np.arange(len(word))[:, None] * wide + word)[word >= 0]) if wide else np.zeros(0, dtype=int)
    text, number = np.divmod(where, max(wide, 1))
    before = np.cumsum([0, *map(len, tokens.words)])
    every = np.fromiter(map(_FORMS.__getitem__, chain.from_iterable(tokens.words)), np.int64, before[-1])
    forms = every[before[text] + number]
    text, number, forms = text[forms >= 0], number[forms >= 0], forms[forms >= 0]
    keys = np.array([text_key(name, stack) for name in ids], dtype=np.uint64)
    items = (mixed(keys[text] ^ mixed(number.astype(np.uint64))) >> np.uint64(16)).astype(np.int64)
    return torch.from_numpy(np.stack([text, number], 1)), torch.from_numpy(forms), torch.from_numpy(items)


def word_vectors(
    tokens: Tokens, where: Int[Tensor, "item 2"], states: Sequence[Float[Tensor, "batch token width"]]
) -> Float[Tensor, "item all_states"]:
    """The mean over the pieces of each word, of every state in turn, where the states are."""
    word = tokens.on_host.word
    # A table from (text, word) to row, read at every token.
    table = torch.full((len(word), int(word.max()) + 2 if word.numel() else 1), -1)
    table[where[:, 0], where[:, 1]] = torch.arange(len(where))
    row = torch.gather(table, 1, word.clamp(min=-1) % table.shape[1]).flatten()
    place = (row >= 0).nonzero()[:, 0]
    pieces = torch.bincount(row[place], minlength=len(where)).clamp(min=1)[:, None]
    device = states[0].device
    row, place, pieces = (each.to(device) for each in (row[place], place, pieces))
    out = []
    for state in states:
        wide = torch.promote_types(state.dtype, torch.float32)
        vectors = state.flatten(0, 1).index_select(0, place).to(wide)
        out.append(vectors.new_zeros(len(where), state.shape[-1]).index_add_(0, row, vectors) / pieces)
    return torch.cat(out, -1)
