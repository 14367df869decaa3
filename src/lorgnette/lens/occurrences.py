"""Word occurrences with their random numbers and vectors, for how alike the occurrences of one word are."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.statistics.hash_sample import moved
from lorgnette.statistics.hashing import splitmix64, text_key
from lorgnette.texts.batch import Tokens


def occurrences(
    tokens: Tokens, ids: Sequence[str], stack: str
) -> tuple[Int[Tensor, "item 2"], Int[Tensor, " item"], Int[Tensor, " item"]]:
    """Every word in the batch that is not punctuation: (text, word), the number of its form, and its own."""
    found = tokens.occurrences
    keys = np.array([text_key(name, stack) for name in ids], dtype=np.uint64)
    by_word = splitmix64(np.arange(found.word.max(initial=-1) + 1, dtype=np.uint64))
    items = (splitmix64(keys[found.text] ^ by_word[found.word]) >> np.uint64(16)).astype(np.int64)
    where = np.stack([found.text, found.word], 1)
    return torch.from_numpy(where), torch.from_numpy(found.form), torch.from_numpy(items)


def smallest_of_each(text: Int[Tensor, " item"], items: Int[Tensor, " item"]) -> Int[Tensor, " text"]:
    """The index of the smallest item of each text; items are in the order of the texts."""
    texts, values = text.numpy(), items.numpy()
    starts = np.flatnonzero(np.diff(texts, prepend=-1))
    least = np.repeat(np.minimum.reduceat(values, starts), np.diff(starts, append=len(values)))
    found = np.flatnonzero(values == least)
    return torch.from_numpy(found[np.diff(texts[found], prepend=-1) != 0])


def word_vectors(
    tokens: Tokens, where: Int[Tensor, "item 2"], states: Sequence[Float[Tensor, "batch token width"]]
) -> Float[Tensor, "item all_states"]:
    """The mean over the pieces of each word, of every state in turn, where the states are."""
    pieces, rows = tokens.word_pieces, where.numpy()
    word = pieces.before[rows[:, 0]] + rows[:, 1]
    count = pieces.count[word]
    to = np.repeat(np.arange(len(rows)), count)
    at = pieces.token[np.arange(len(to)) + np.repeat(pieces.first[word] - np.cumsum(count) + count, count)]
    # In one piece: every transfer costs as much as the next.
    sent = moved(torch.from_numpy(np.concatenate([to, at, np.maximum(count, 1)])), states[0].device)
    row, token, divisor = sent.split([len(to), len(to), len(rows)])
    vectors = torch.stack([state.flatten(0, 1).index_select(0, token) for state in states], 1)
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    sums = vectors.new_zeros(len(rows), *vectors.shape[1:]).index_add_(0, row, vectors)
    return (sums / divisor[:, None, None]).flatten(1)
