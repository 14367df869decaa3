"""The words of a batch, counted through all its texts: what each is made of, and which form it has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from jaxtyping import Int

from lorgnette.statistics.hashing import text_key


@lru_cache(maxsize=2**16)
def word_number(word: str) -> int:
    """48 random bits that depend on the word alone, whatever its case."""
    return text_key("word", word.lower()) >> 16


class _Forms(dict[str, int]):
    """The number of each word that was met; −1 for one without a letter or digit."""

    def __missing__(self, word: str) -> int:
        self[word] = number = word_number(word) if re.search(r"\w", word) else -1
        return number


_MOST_FORMS = 2**18
_FORMS = _Forms()


def _form_numbers(words: Sequence[Sequence[str]]) -> Int[np.ndarray, " word"]:
    """Of all words of some texts. Words that were met cost one look into a table each."""
    if len(_FORMS) >= _MOST_FORMS:
        _FORMS.clear()
    return np.fromiter(map(_FORMS.__getitem__, chain.from_iterable(words)), np.int64, sum(map(len, words)))


@dataclass(frozen=True)
class WordPieces:
    """Which tokens each word is made of."""

    many: Int[np.ndarray, " text"]  # words of each text, also those that were cut off
    before: Int[np.ndarray, " text"]  # words of the texts before
    count: Int[np.ndarray, " word"]  # pieces of each word
    first: Int[np.ndarray, " word"]  # where they begin among the tokens
    token: Int[np.ndarray, " piece"]  # places in the flat batch, in the order of the words

    @staticmethod
    def of(word: Int[np.ndarray, "text token"], words: Sequence[Sequence[str]]) -> "WordPieces":
        many = np.array(list(map(len, words)), dtype=np.int64)
        before = np.cumsum(many) - many
        token = np.flatnonzero(word >= 0)
        owner = (word + before[:, None]).ravel()[token]
        count = np.bincount(owner, minlength=int(many.sum()))
        if (owner[1:] < owner[:-1]).any():  # a word that comes back
            token = token[np.argsort(owner, kind="stable")]
        return WordPieces(many, before, count, np.cumsum(count) - count, token)


@dataclass(frozen=True)
class Occurrences:
    """Every word with a token that is not punctuation."""

    text: Int[np.ndarray, " item"]
    word: Int[np.ndarray, " item"]  # its number in the text
    form: Int[np.ndarray, " item"]  # the number of its form

    @staticmethod
    def of(pieces: WordPieces, words: Sequence[Sequence[str]]) -> "Occurrences":
        form = _form_numbers(words)
        found = np.flatnonzero((pieces.count > 0) & (form >= 0))
        text = np.repeat(np.arange(len(pieces.many)), pieces.many)[found]
        return Occurrences(text, found - pieces.before[text], form[found])
