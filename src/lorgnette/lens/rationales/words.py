"""Scores of words by every explanation, and by three baselines: random words, the first words, the last words."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.explaining import explain
from lorgnette.lens.rationales.gold import Marked
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

BLIND = {
    "random": "words in random order, fixed by the seed",
    "first": "the first words of the text",
    "last": "the last words of the text",
}
"""Explanations that look neither at the model nor at the words: what any other must beat."""
_DIGITS = 5


def word_scores(
    subject: Subject, batch: Batch, texts: Sequence[Marked], method: str, seed: int, target: int | None = None
) -> list[Float[Tensor, "_"]]:
    """How much each word that the model sees speaks for its prediction, or a class: the sum over the word's pieces."""
    if method in BLIND:
        return [_blind(text, method, seed) for text in texts]
    try:
        explanation = explain(subject, batch, method, target).words()
    except UserError as error:
        raise UserError(f"{method}: {error}") from error
    out = []
    for text, scores in zip(texts, explanation, strict=True):
        scores = scores.detach().double().cpu()[text.visible]
        if not bool(scores.isfinite().all()):
            raise UserError(f"{method} returned NaN or infinity for the text {text.example.id!r}. Leave it out.")
        out.append(settled(scores))
    return out


def settled(scores: Float[Tensor, " word"]) -> Float[Tensor, " word"]:
    """Parts of the largest, to five digits: what the model rounds must not order words that are equal."""
    largest = scores.abs().max()
    return (scores / largest).round(decimals=_DIGITS) if largest > 0 else scores


def ranks(scores: Float[Tensor, " word"], text: Marked, seed: int) -> Int[Tensor, " word"]:
    """The place of each word, 0 the highest score; equal ones stand in random order.

    Not in that of the text: uniform attention would else be the explanation by the first words.
    """
    order = _dice(text, "ties", seed).argsort()
    order = order[scores[order].argsort(descending=True, stable=True)]
    return order.argsort()


def _blind(text: Marked, method: str, seed: int) -> Float[Tensor, " seen"]:
    if method == "random":
        return _dice(text, method, seed)
    place = torch.arange(int(text.visible.sum()), dtype=torch.float64)
    return -place if method == "first" else place


def _dice(text: Marked, use: str, seed: int) -> Float[Tensor, " seen"]:
    """A random number for each word, by text and seed alone, so that they do not depend on the batch."""
    generator = torch.Generator().manual_seed(text_key(use, seed, text.example.id) >> 1)
    return torch.rand(int(text.visible.sum()), dtype=torch.float64, generator=generator)
