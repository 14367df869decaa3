"""The words of a batch, counted through all its texts: what each is made of, and which form it has."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from lorgnette.texts.sides import WordSpans
from lorgnette.texts.word_forms import form_numbers


@dataclass(frozen=True)
class WordPieces:
    """Which tokens each word is made of."""

    many: Int[np.ndarray, " text"]  # words of each text, also those that were cut off
    before: Int[np.ndarray, " text"]  # words of the texts before
    count: Int[np.ndarray, " word"]  # pieces of each word
    first: Int[np.ndarray, " word"]  # where they begin among the tokens
    token: Int[np.ndarray, " piece"]  # places in the flat batch, in the order of the words

    @staticmethod
    def of(word: Int[np.ndarray, "text token"], words: Sequence[WordSpans]) -> "WordPieces":
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
    def of(pieces: WordPieces, words: Sequence[WordSpans]) -> "Occurrences":
        form = form_numbers(words)
        found = np.flatnonzero((pieces.count > 0) & (form >= 0))
        text = np.repeat(np.arange(len(pieces.many)), pieces.many)[found]
        return Occurrences(text, found - pieces.before[text], form[found])
