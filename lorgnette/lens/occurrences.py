"""Word occurrences with their random numbers and vectors, for how alike the occurrences of one word are."""

import re
from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.statistics.hashing import text_key
from lorgnette.texts.batch import Tokens


@lru_cache(maxsize=2**16)
def word_number(word: str) -> int:
    """48 random bits that depend on the word alone, whatever its case."""
    return text_key("word", word.lower()) >> 16


def occurrences(
    tokens: Tokens, ids: Sequence[str], stack: str
) -> tuple[Int[Tensor, "item 2"], list[str], Int[Tensor, " item"]]:
    """Every word in the batch that is not punctuation: (text, word), its form, and its random number."""
    where, forms, numbers = [], [], []
    for text, row in enumerate(tokens.word.cpu().tolist()):
        for word in dict.fromkeys(number for number in row if number >= 0):
            form = tokens.words[text][word]
            if re.search(r"\w", form):
                where.append((text, word))
                forms.append(form)
                numbers.append(text_key(ids[text], stack, word) >> 16)
    return torch.tensor(where, dtype=torch.long).reshape(-1, 2), forms, torch.tensor(numbers, dtype=torch.long)


def word_vectors(
    tokens: Tokens, where: Int[Tensor, "item 2"], states: Sequence[Float[Tensor, "batch token width"]]
) -> Float[Tensor, "item all_states"]:
    """The mean over the pieces of each word, of every state in turn."""
    word = tokens.word
    place = torch.full(word.shape, -1, dtype=torch.long, device=word.device)
    where = where.to(word.device)
    if len(where):
        # A table from (text, word) to row, read at every token.
        table = torch.full((len(word), int(word.max()) + 2), -1, dtype=torch.long, device=word.device)
        table[where[:, 0], where[:, 1]] = torch.arange(len(where), device=word.device)
        place = torch.gather(table, 1, word.clamp(min=-1) % table.shape[1])
    here = place >= 0
    pieces = torch.bincount(place[here], minlength=len(where)).clamp(min=1)[:, None]
    out = []
    for state in states:
        vectors = state[here].to(torch.promote_types(state.dtype, torch.float32))
        summed = vectors.new_zeros(len(where), state.shape[-1]).index_add_(0, place[here], vectors)
        out.append(summed / pieces)
    return torch.cat(out, -1).cpu()
