"""A text and its counterpart, which differ in one thing: the question about both, and whether they can be patched."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.explaining.target import class_number, piece_number
from lorgnette.lens.effects.goal import Goal
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, TokenTexts
from lorgnette.texts.example import Example
from lorgnette.texts.padding import last_positions

COUNTERPART, ANSWER, OTHER = "counterpart", "answer", "other"
"""Names in `Example.extra`, which are columns of a table."""


def pair_key(example: Example) -> int:
    """The same for both directions of a pair, which are not independent of each other."""
    return text_key(*sorted((example.text or "", str(example.extra.get(COUNTERPART)))))


def counterparts(subject: Subject, batch: Batch) -> Batch:
    """The counterpart of every text, with as many tokens, each where the text has its own."""
    others = subject.encode([_counterpart(example) for example in batch.examples])
    for example, own, other in zip(batch.examples, batch.lengths.tolist(), others.lengths.tolist(), strict=True):
        if own != other:
            raise UserError(
                f"The text {example.id!r} has {own} tokens for {subject.name!r} and its counterpart {other}: a head's "
                "output is patched token by token. Use pairs with the same number of tokens."
            )
    return _laid_out(others, batch)


def _laid_out(others: Batch, like: Batch) -> Batch:
    """Texts of the same lengths with their padding where `like` has its own; the decoder reads the same."""
    tokens, real = others.source, like.source.mask

    def placed(values: Shaped[Tensor, "batch token"], around: Shaped[Tensor, "batch place"]) -> Tensor:
        return around.masked_scatter(real, values[tokens.mask])

    nowhere = torch.zeros_like(real)
    source = tokens.replaced(
        ids=placed(tokens.ids, like.source.ids),
        mask=real,
        special=placed(tokens.special, nowhere),
        categories={name: placed(where, nowhere) for name, where in tokens.categories.items()},
        text=TokenTexts.of(placed(tokens.word, torch.full_like(like.source.word, -1)), tokens.pieces, tokens.words),
    )
    own = ("input_ids", "token_type_ids")
    inputs = {name: placed(others.inputs[name], like.inputs[name]) for name in own if name in like.inputs}
    return replace(others, inputs=like.inputs | inputs, source=source, target=like.target)


def _counterpart(example: Example) -> Example:
    text = example.extra.get(COUNTERPART)
    if not isinstance(text, str):
        raise UserError(
            f"The text {example.id!r} has no counterpart. Give pairs: a table with columns text and counterpart (and "
            "answer and other), or planted:pairs."
        )
    words = None if example.words is None else tuple(text.split())
    return Example(
        example.id, text, pair=example.pair, words=words, label=None, target=example.target, extra=_pair_start(example)
    )


def _pair_start(example: Example) -> dict[str, object]:
    return {key: value for key, value in example.extra.items() if key == "pair_start"}


def question(subject: Subject, task: str, batch: Batch, clean: Tensor, corrupt: Tensor) -> Goal:
    """logit(answer) − logit(other), at the position that the question is about.

    A classifier says one class; a language model the token behind the text; a masked one the token at its mask; a
    translation model the token behind `target`, which the decoder reads for both texts alike. Where a text names no
    answer, it is its class, or what the model says of it; no other, what is likeliest in the counterpart besides the
    answer.
    """
    where = _place(subject, task, batch)
    rows = [logits.detach() if where is None else _at(logits.detach(), where) for logits in (clean, corrupt)]
    answer = rows[0].argmax(-1)
    if task == "classification":
        given = [-1 if example.label is None else example.label for example in batch.examples]
        label = torch.tensor(given, device=answer.device)
        answer = torch.where((label >= 0) & (label < rows[0].shape[-1]), label, answer)
    answer = _numbers(subject, task, batch.examples, ANSWER, answer)
    likeliest = rows[1].scatter(-1, answer[:, None], -torch.inf).argmax(-1)
    other = _numbers(subject, task, batch.examples, OTHER, likeliest)
    if bool((answer == other).any()):
        example = batch.examples[int((answer == other).int().argmax())]
        raise UserError(f"The text {example.id!r} has the same answer and other: name two that differ.")
    ones = torch.ones_like(answer, dtype=clean.dtype)
    if where is None:
        return Goal(answer, other, ones)
    wide = torch.zeros(clean.shape[:-1], dtype=clean.dtype, device=clean.device).scatter(
        1, where[:, None], ones[:, None]
    )
    return Goal(answer[:, None].expand_as(wide), other[:, None].expand_as(wide), wide)


def _at(values: Float[Tensor, "batch token choice"], where: Int[Tensor, " batch"]) -> Float[Tensor, "batch choice"]:
    return values[torch.arange(len(values), device=values.device), where]


def _place(subject: Subject, task: str, batch: Batch) -> Int[Tensor, " batch"] | None:
    """The position whose prediction counts."""
    tokens = batch.source
    if task == "classification":
        return None
    if task == "causal":
        return last_positions(tokens.mask)
    if task == "translation":
        assert batch.target is not None
        return last_positions(batch.target.mask)  # without a target the decoder reads its start token alone
    hidden = tokens.mask & (tokens.ids == subject.tokenizer.mask_token_id)
    for example, count in zip(batch.examples, hidden.sum(-1).tolist(), strict=True):
        if count != 1:
            raise UserError(
                f"The text {example.id!r} has {count} mask tokens: patching a masked language model needs one "
                f"({subject.tokenizer.mask_token})."
            )
    return hidden.int().argmax(-1)


def _numbers(
    subject: Subject, task: str, examples: Sequence[Example], name: str, default: Int[Tensor, " batch"]
) -> Int[Tensor, " batch"]:
    """The class or piece that each text names, or the default."""
    out = default.clone()
    for number, example in enumerate(examples):
        given = example.extra.get(name)
        if given is not None:
            if task == "classification":
                out[number] = class_number(subject, str(given))
            else:
                out[number] = piece_number(subject, str(given), translated=task == "translation")
    return out
