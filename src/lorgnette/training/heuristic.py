"""A map of what matters in a pair of sentences, made without annotators (Nguyen et al. 2022)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from lorgnette.errors import UserError
from lorgnette.texts import Example
from lorgnette.texts.vectors import read_vectors
from lorgnette.training.data import Mapper
from lorgnette.training.settings import TrainingSettings

CONTENT = ("VERB", "NOUN", "ADJ")


def heuristic_mapper(settings: TrainingSettings) -> Mapper:
    """The map with the run's vectors; those of GloVe if the run has none."""
    from lorgnette.training.build import vectors_path

    source = settings.embeddings if settings.embeddings not in (None, "random") else "glove"
    words, vectors = read_vectors(vectors_path(source, settings))
    heuristic = Heuristic(words, vectors)
    return heuristic.of


class Heuristic:
    """t_i = softmax over content words of Σ_j cos(x_i, x_j), j the words of the other sentence; ½ for each sentence.

    Content words are the verbs, nouns and adjectives that are no stop words; without parts of speech in the corpus
    (tag "upos"), all words that are no stop words, and if there are none, all words. Nguyen et al. 2022 take lemmas;
    here words are lower-cased as they stand. A word without a vector has cosine 0 with everything. It says which words
    have a counterpart on the other side, not which of them decide.
    """

    def __init__(self, words: Sequence[str], vectors: Float[np.ndarray, "word dim"]) -> None:
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        self.place: dict[str, int] = {word: row for row, word in enumerate(words)}
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.unit = vectors / np.where(length == 0, 1, length)
        self.stop_words = ENGLISH_STOP_WORDS

    def of(self, example: Example, words: Sequence[str]) -> list[float]:
        """A value for each word of both sentences, in order."""
        start = example.extra.get("pair_start")
        if start is None:
            raise UserError(
                f"the heuristic map compares the words of two sentences, and {example.id!r} has no such pair: use a "
                "corpus like e-SNLI."
            )
        tags = example.tags.get("upos")
        sides = [list(words[:start]), list(words[start:])]
        parts = [tags[:start], tags[start:]] if tags is not None else [None, None]
        first = self.side(sides[0], sides[1], parts[0])
        return [value / 2 for value in (*first, *self.side(sides[1], sides[0], parts[1]))]

    def side(self, words: list[str], others: list[str], tags: Sequence[str] | None) -> list[float]:
        """The map of one sentence, a distribution over its words."""
        if not words:
            return []
        cosine = self._vectors(words) @ self._vectors(others).sum(axis=0)
        content = np.array(self._content(words, tags))
        score = np.where(content, cosine, -np.inf)
        weights = np.exp(score - score.max())
        return (weights / weights.sum()).tolist()

    def _vectors(self, words: list[str]) -> Float[np.ndarray, "word dim"]:
        out = np.zeros((len(words), self.unit.shape[1]))
        for row, word in enumerate(words):
            if (place := self.place.get(word.lower())) is not None:
                out[row] = self.unit[place]
        return out

    def _content(self, words: list[str], tags: Sequence[str] | None) -> list[bool]:
        said = [word.lower() not in self.stop_words and any(map(str.isalnum, word)) for word in words]
        named = said if tags is None else [s and tag in CONTENT for s, tag in zip(said, tags, strict=True)]
        for choice in (named, said):
            if any(choice):
                return choice
        return [True] * len(words)
