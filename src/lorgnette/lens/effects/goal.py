"""Which number of a model's output effects are measured on: a logit of each text, or a difference of two."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.explaining.target import class_number
from lorgnette.lens.losses import IGNORED
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.patches import before_patches

TARGETS = {
    "predicted": "logit of what the model predicts",
    "margin": "logit of what the model predicts minus that of the second likeliest",
}


@dataclass(frozen=True)
class Goal:
    """Mean over a text's predictions of the logit of one answer, minus that of another if one is given."""

    answer: Int[Tensor, "batch *token"]
    other: Int[Tensor, "batch *token"] | None
    weight: Float[Tensor, "batch *token"]
    """1 over the number of predictions, 0 where nothing is predicted"""

    def __call__(self, logits: Float[Tensor, "batch *token choice"]) -> Float[Tensor, " batch"]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        each = logits.gather(-1, self.answer[..., None])[..., 0].to(wide)
        if self.other is not None:
            each = each - logits.gather(-1, self.other[..., None])[..., 0].to(wide)
        return (each * self.weight.to(wide)).reshape(len(each), -1).sum(-1)

    @property
    def exists(self) -> Float[Tensor, " batch"]:
        """Which texts have a prediction: 1 or 0."""
        return (self.weight.reshape(len(self.weight), -1).sum(-1) > 0).to(self.weight.dtype)


def goal_of(
    subject: Subject, task: str, batch: Batch, logits: Tensor, target: Sequence[str], labels: Tensor | None = None
) -> Goal:
    """What is fixed by the intact pass, so that it stays the same without a head; `labels` are those of masked pieces.

    A classifier predicts one class, a translation model a piece at every piece of the reference, a language model one
    behind every piece of the text, a masked one those that are hidden.
    """
    logits = logits.detach()
    first, second = logits.topk(2, -1).indices.unbind(-1)
    predicts = _predictions(subject, task, batch, logits, labels)
    other = second if target[0] == "margin" else None
    if target[0] not in TARGETS:
        first, *rest = (torch.full_like(first, class_number(subject, name)) for name in target)
        other = rest[0] if rest else None
    count = predicts.reshape(len(predicts), -1).sum(-1)
    wide = torch.promote_types(logits.dtype, torch.float32)
    weight = predicts.to(wide) / count.clamp(min=1).reshape(-1, *(1,) * (predicts.dim() - 1))
    return Goal(first, other, weight)


def _predictions(
    subject: Subject, task: str, batch: Batch, logits: Tensor, labels: Tensor | None
) -> Bool[Tensor, "batch *token"]:
    if task == "classification":
        return torch.ones(len(batch), dtype=torch.bool, device=logits.device)
    if task == "masked":
        assert labels is not None
        return labels.to(logits.device) != IGNORED
    tokens = batch.source if batch.target is None else batch.target
    return tokens.mask & ~before_patches(tokens.ids, subject.model.config)


def checked(target: str | Sequence[str]) -> tuple[str, ...]:
    """The target as names: one of `TARGETS`, a class, or two classes."""
    names = (target,) if isinstance(target, str) else tuple(target)
    if not 1 <= len(names) <= 2 or (len(names) == 2 and set(names) & set(TARGETS)):
        raise UserError(
            f"The option 'target' of the lens 'effects' must be {', '.join(TARGETS)}, a class, or two classes (a+b). "
            f"Got {target!r} instead."
        )
    return names
