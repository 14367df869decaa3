"""Occlusion: how far the logit falls when one token is hidden."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Tap
from lorgnette.explaining.backward import run_options
from lorgnette.explaining.explanation import Explanation
from lorgnette.explaining.inputs import without_words, words_changed
from lorgnette.explaining.target import Target, explained, fixed, named
from lorgnette.models.switching import evaluating
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens

COST = "one forward pass for each token of the longest text; attnlrp takes one backward pass"


def occluded(subject: Subject, batch: Batch, target: Target = None) -> Explanation:
    """f(x) − f(x without token t): one pass for each position of the batch, and no gradient.

    A hidden token keeps its place, and gets the vector of the mask token (or of padding, or zero where there is
    neither), as in the baseline of integrated gradients. Special tokens are never hidden and get nothing. Zeiler &
    Fergus 2014, "Visualizing and Understanding Convolutional Networks", ECCV; for words: Li, Monroe, Jurafsky 2016,
    "Understanding Neural Networks through Representation Erasure".
    """
    with torch.no_grad(), evaluating(subject.model), subject.tapped(Tap()):
        outputs = subject.run(batch, **run_options(subject))
        target = fixed(subject, batch, outputs, target)
        start = explained(subject, batch, outputs, target)
        tokens = _drops(subject, batch, target, start, batch.source)
        targets = None if batch.target is None else _drops(subject, batch, target, start, batch.target)
    names = tuple(named(subject, batch, outputs.logits, target))
    return Explanation("occlusion", start, tokens, targets, explained=names)


def _drops(
    subject: Subject, batch: Batch, target: Target, start: Float[Tensor, " batch"], side: Tokens
) -> Float[Tensor, "batch token"]:
    inner = side.mask & ~side.special
    out = start.new_zeros(inner.shape)
    for place in inner.any(0).nonzero()[:, 0].tolist():
        hidden = torch.zeros_like(inner)
        hidden[:, place] = inner[:, place]
        left = _value_without(subject, batch, target, hidden, second=side is batch.target)
        out[:, place] = torch.where(inner[:, place], start - left, 0.0)
    return out


def _value_without(
    subject: Subject, batch: Batch, target: Target, hidden: Bool[Tensor, "batch token"], *, second: bool
) -> Float[Tensor, " batch"]:
    """What is explained, with some tokens of the source hidden, or of the target (the second to be looked up)."""
    nothing, looked_up = without_words(subject), 0

    def change(vectors: Tensor) -> Tensor:
        nonlocal looked_up
        looked_up += 1
        if looked_up != 1 + second:
            return vectors
        return torch.where(hidden[..., None], nothing.to(vectors), vectors)

    with words_changed(subject, change):
        outputs = subject.run(batch, **run_options(subject))
    return explained(subject, batch, outputs, target)
