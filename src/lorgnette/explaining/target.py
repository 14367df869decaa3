"""The target of an explanation: which number of a model's output is explained."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.constraints import check
from lorgnette.errors import UserError, near, outside, shown, whole_number
from lorgnette.explaining.relevance import stabilised
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.padding import is_last, positions_of
from lorgnette.texts.readable import readable, readable_piece
from lorgnette.types import ModelOutput

Piece = str | int | Tensor


@dataclass(frozen=True)
class Next:
    """What a language model says at one place of a text, perhaps against something else that it might have said.

        >>> rival = lo.Next(" Paris", instead_of=" London")  # logit of " Paris" − logit of " London", behind the text
        >>> said = lo.Next(at=12)  # the logit of token 12 of the text, where it was to be said
        >>> several = lo.Next(at=range(12, 17))  # the summed logits of tokens 12 to 16, each where it was to be said

    A piece is a text that is one token, as it is typed (most tokenizers write the space before a word with it), or its
    id. Without one it is the token that stands there, or behind the text the likeliest. Contrastive explanations:
    Yin & Neubig 2022, "Interpreting Language Models with Contrastive Explanations", EMNLP.
    """

    piece: Piece | None = None
    instead_of: Piece | None = None
    at: int | range | None = None
    """the place (from 0) of the token that is said, or those of several; None: behind the text"""

    def __post_init__(self) -> None:
        for name in ("piece", "instead_of"):
            check(getattr(self, name), Piece | None, f"{name}, a piece of text or the id of a token,")
        if self.at is not None and not isinstance(self.at, range):
            object.__setattr__(self, "at", whole_number(self.at, "at, the place of a token (or a range of places),"))

    @property
    def places(self) -> range | None:
        return range(self.at, self.at + 1) if isinstance(self.at, int) else self.at


Target = int | Tensor | tuple[int, ...] | Next | None
"""None: the largest logit; a class (or piece) for all texts, or one for each; (a, b): logit of a minus logit of b;
`Next`: what a language model says at one place."""


def no_head(subject: Subject) -> UserError:
    """The error for a model that predicts nothing."""
    return UserError(
        f"{subject.name!r} ({type(subject.model).__name__}) has no logits to explain: it has no output head. "
        "Give a classifier, a translation model, or a language model with its head."
    )


def require_head(subject: Subject) -> None:
    """Refuse a model that predicts nothing, before any pass."""
    outputs = getattr(subject.model, "get_output_embeddings", lambda: None)()
    if subject.labels is None and outputs is None:
        raise no_head(subject)


def explained(
    subject: Subject, batch: Batch, outputs: ModelOutput, target: Target, *, one: bool = False
) -> Float[Tensor, " batch"]:
    """The number to be explained, one for each text, inside the graph; with `one`, each prediction counts as 1."""
    logits = getattr(outputs, "logits", None)
    if logits is None:
        raise no_head(subject)
    if logits.dim() == 2:
        _refuse_reading_padding(subject, batch)
    first, *second = _choices(subject, batch, logits, target)
    start = logits.gather(-1, first[..., None])[..., 0]
    for other in second:
        start = start - logits.gather(-1, other[..., None])[..., 0]
    if one:
        start = start / stabilised(start.detach(), 1e-9)
    if start.dim() == 1:
        return start
    return (start * positions(subject, batch, target).to(start.dtype)).sum(-1)


def pooling(subject: Subject) -> str:
    """The pooling of a classifier, by its config; by default "cls"."""
    config = subject.model.config
    names = ("pooling", "classifier_pooling", "summary_type")
    return next((str(getattr(config, name)) for name in names if getattr(config, name, None)), "cls")


def _refuse_reading_padding(subject: Subject, batch: Batch) -> None:
    """A text that begins with padding, for a classifier that reads position 0: its logits are not about the text."""
    if subject.anatomy.causal or pooling(subject) not in ("cls", "cls-zero", "first"):
        return
    for example, begins in zip(batch.examples, batch.source.on_host.mask[:, 0].tolist(), strict=True):
        if not begins:
            raise UserError(
                f"{subject.name!r} reads the first position, which is padding in the text {example.id!r}: pad on the "
                "right (tokenizer.padding_side = 'right')."
            )


def class_number(subject: Subject, name: str) -> int:
    """The index of a class by its name; a `UserError` lists all names if there is no such class."""
    labels = subject.labels
    if labels is None:
        raise UserError(
            f"{subject.name!r} ({type(subject.model).__name__}) is not a classifier, so class {name!r} cannot be "
            "explained: leave out the class."
        )
    exact = [number for number, label in enumerate(labels) if label == name]
    loose = [number for number, label in enumerate(labels) if label.casefold() == name.strip().casefold()]
    chosen = exact or loose
    if len(chosen) != 1:
        raise UserError(f"{subject.name!r} has no class {name!r}.{near(name, labels)} It has: {', '.join(labels)}.")
    return chosen[0]


def named(subject: Subject, batch: Batch, logits: Float[Tensor, "batch *token choice"], target: Target) -> list[str]:
    """What is explained of each text, in words: a class ("positive", "positive − negative"), or predicted pieces."""
    choices = _choices(subject, batch, logits, target)
    where = None if logits.dim() == 2 else positions(subject, batch, target)
    names = []
    for text in range(len(batch)):
        chosen = [ids[text] if where is None else ids[text][where[text]] for ids in choices]
        names.append(" − ".join(_words(subject, ids.reshape(-1).tolist(), logits.shape[-1]) for ids in chosen))
    return names


def _words(subject: Subject, ids: list[int], choices: int) -> str:
    if subject.labels is not None and len(subject.labels) == choices:
        return " ".join(subject.labels[number] for number in ids)
    text = str(subject.tokenizer.decode(ids))
    if text:
        return text.strip() or readable(text)
    # A model may have more ids than its tokenizer has pieces.
    pieces = subject.tokenizer.convert_ids_to_tokens(ids)
    return " ".join(readable_piece(piece) if piece else str(i) for i, piece in zip(ids, pieces, strict=True))


def fixed(subject: Subject, batch: Batch, outputs: ModelOutput, target: Target) -> Target:
    """The same target with the largest logits written out, so that they stay the same when the input changes."""
    if target is not None and not isinstance(target, Next):
        return target
    logits = getattr(outputs, "logits", None)
    if logits is None:
        raise no_head(subject)
    if target is None:
        return logits.detach().argmax(-1)
    return replace(target, piece=_said(subject, batch, logits, target))


def positions(subject: Subject, batch: Batch, target: Target = None) -> Bool[Tensor, "batch token"]:
    """Whose predictions are explained, where a model predicts something at every token.

    Translation: every piece of the target; a decoder alone: what follows the text; a masked-LM: the masked pieces of a
    text, or all but the special ones if nothing is masked; a classifier of tokens: all but the special ones.
    """
    if batch.target is not None:
        for example in batch.examples:
            if example.target is None:
                raise UserError(
                    f"The text {example.id!r} has no translation whose tokens could be explained. "
                    "Give a corpus with targets."
                )
        return batch.target.mask
    tokens = batch.source
    if isinstance(target, Next):
        _refuse_place(subject, batch, target)
    if subject.anatomy.causal and subject.labels is None:
        if isinstance(target, Next) and target.places is not None:
            where = torch.stack([positions_of(tokens.mask, place - 1) for place in target.places], 1)
            return torch.zeros_like(tokens.mask).scatter(1, where, True)
        return is_last(tokens.mask)
    inner = tokens.mask & ~tokens.special
    mask = subject.tokenizer.mask_token_id
    if mask is None or subject.labels is not None:
        return inner
    hidden = tokens.mask & (tokens.ids == mask)
    return torch.where(hidden.any(-1, keepdim=True), hidden, inner)


def _choices(
    subject: Subject, batch: Batch, logits: Float[Tensor, "batch *token choice"], target: Target
) -> list[Int[Tensor, "batch *token"]]:
    if target is None:
        return [logits.detach().argmax(-1)]
    if isinstance(target, Next):
        _refuse_place(subject, batch, target)
        said = [_said(subject, batch, logits, target)]
        said += [] if target.instead_of is None else [piece_number(subject, target.instead_of)]
        return [_one(subject, len(batch), logits, choice) for choice in said]
    wanted = list(target) if isinstance(target, tuple) else [target]
    if isinstance(target, tuple) and len(target) != 2:
        raise UserError(f"A difference of logits needs two classes: target=(a, b). Got {len(target)} instead.")
    return [_one(subject, len(batch), logits, choice) for choice in wanted]


def _said(subject: Subject, batch: Batch, logits: Float[Tensor, "batch token choice"], target: Next) -> int | Tensor:
    """The piece that is explained: the one that is named, the one that stands there, or the likeliest."""
    if target.piece is not None:
        return piece_number(subject, target.piece)
    if target.at is None:
        return logits.detach().argmax(-1)
    return batch.source.ids.roll(-1, 1)  # what stands behind each token


def piece_number(subject: Subject, piece: Piece, *, translated: bool = False) -> int | Tensor:
    """The number of one token; `translated` takes the tokens of the target language, which Marian cuts otherwise."""
    if not isinstance(piece, str):
        return piece
    ids = subject.tokenizer(**{"text_target" if translated else "text": piece}, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        pieces = ", ".join(repr(subject.tokenizer.decode([number])) for number in ids)
        raise UserError(f"{piece!r} is {len(ids)} tokens of {subject.name!r} ({pieces}), not one. Choose one of them.")
    return int(ids[0])


def _refuse_place(subject: Subject, batch: Batch, target: Next) -> None:
    if not subject.anatomy.causal or subject.labels is not None:
        raise UserError(f"{subject.name!r} is not a causal language model: it does not predict a next token.")
    shortest, places = int(batch.source.lengths.min()), target.places
    if places is not None and not len(places):
        raise UserError("There is nothing to explain: the range of tokens is empty.")
    if places is not None and not (min(places) >= 1 and max(places) < shortest):
        wrong = min(places) if min(places) < 1 else max(places)
        raise UserError(
            f"There is nothing to explain at token {wrong}: the text has {shortest}, and the model does not "
            f"predict the first. Expected 1 to {shortest - 1} (from 0)."
        )


def _counts(ids: Tensor) -> bool:
    return not (ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool)


def _one(subject: Subject, texts: int, logits: Tensor, choice: int | Tensor) -> Int[Tensor, "batch *token"]:
    classes, kind = logits.shape[-1], "class" if logits.dim() == 2 or subject.labels is not None else "token"
    # Rules that are installed would pass the conversion on, and its error would seem to be ours.
    wrong_kind = outside(f"The target {shown(choice)} is no {kind}", f"Give the number or the name of a {kind}.")
    with wrong_kind, torch._C.DisableTorchFunction():
        ids = torch.as_tensor(choice, device=logits.device)
    if not _counts(ids) or ids.shape not in ((), (texts,), logits.shape[:-1]):
        raise UserError(
            f"The target must be a {kind}, or one for each of the {texts} texts. Got {ids.dtype} of shape "
            f"{tuple(ids.shape)} instead."
        )
    wrong = (ids < 0) | (ids >= classes)
    if bool(wrong.any()):
        names = f" ({', '.join(subject.labels)})" if subject.labels and classes == len(subject.labels) else ""
        raise UserError(
            f"There is no {kind} {int(ids[wrong][0] if ids.dim() else ids)}: {subject.name!r} has {classes}{names}, "
            f"numbered from 0 to {classes - 1}."
        )
    while ids.dim() < logits.dim() - 1:
        ids = ids[..., None]
    return ids.expand(logits.shape[:-1])
