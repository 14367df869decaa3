"""The training loss of each text, from which gradients and relevance start."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.padding import last_positions
from lorgnette.texts.patches import before_patches
from lorgnette.types import ModelOutput

TASKS = {
    "classification": "cross-entropy of the example's label",
    "translation": "cross-entropy of the reference translation, mean over its tokens",
    "causal": "cross-entropy of the next token, mean over tokens",
    "masked": "cross-entropy of the masked tokens, mean over them",
}
IGNORED = -100


def classifies(subject: Subject) -> bool:
    """Whether it says one of several classes of a text."""
    return len(subject.labels or ()) > 1 and "TokenClassif" not in type(subject.model).__name__


def task_of(subject: Subject) -> str:
    """Which of TASKS the subject has a head for."""
    model = subject.model
    name = type(model).__name__
    if classifies(subject):
        return "classification"
    if subject.labels is not None and "TokenClassif" not in name:
        raise UserError(f"{subject.name!r} has a single output and therefore no classes. Use a classifier.")
    if getattr(model, "get_output_embeddings", lambda: None)() is not None:
        if subject.encoder.translates:
            return "translation"
        return "causal" if subject.anatomy.causal else "masked"
    raise UserError(
        f"{subject.name!r} ({name}) has no loss: it has no output head. "
        "Give a classifier with a labelled corpus, a translation model, or a language model with its head."
    )


def text_losses(
    subject: Subject, task: str, batch: Batch, outputs: ModelOutput, labels: Int[Tensor, "batch token"] | None = None
) -> tuple[Float[Tensor, " text"], Float[Tensor, " text"]]:
    """The loss of each text, in the graph, and 1 for texts that have one (0: nothing to predict in it).

    One text's loss does not depend on the others in the batch. `labels` are those of `masked`.
    """
    if task == "classification":
        logits = _wide(outputs.logits)
        wanted = class_labels(subject, batch).to(logits.device)
        return F.cross_entropy(logits, wanted, reduction="none"), torch.ones(len(batch), device=logits.device)
    return mean_losses(outputs.logits, right_tokens(subject, task, batch, labels))


def mean_losses(
    logits: Float[Tensor, "text token vocabulary"], labels: Int[Tensor, "text token"]
) -> tuple[Float[Tensor, " text"], Float[Tensor, " text"]]:
    """The mean cross-entropy of each text's labels but those that are IGNORED, and 1 for texts that have any."""
    logits, labels = _wide(logits), labels.to(logits.device)
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED)
    each = each.view_as(labels)
    counts = (labels != IGNORED).sum(-1)
    return each.sum(-1) / counts.clamp(min=1), (counts > 0).to(logits.dtype)


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype.itemsize < 4 else logits


def right_tokens(
    subject: Subject, task: str, batch: Batch, labels: Int[Tensor, "batch token"] | None = None
) -> Int[Tensor, "batch token"]:
    """The token that each position should predict, IGNORED where there is none; `labels` are those of `masked`."""
    if task == "translation":
        labels = next_pieces(_references(batch), _end(subject), subject.limit)
    elif task == "causal":
        labels = next_pieces(batch.source, None, None)
        labels = labels.masked_fill(before_patches(batch.source.ids, subject.model.config), IGNORED)
    assert labels is not None
    return labels


def text_metrics(
    subject: Subject, task: str, batch: Batch, logits: Tensor, labels: Int[Tensor, "batch token"] | None = None
) -> tuple[Float[Tensor, "metric text"], Float[Tensor, " text"]]:
    """Loss (and, of a classifier, whether it is right) of each text, and which texts have one."""
    losses, exists = text_losses(subject, task, batch, SimpleNamespace(logits=logits), labels)
    if task != "classification":
        return losses[None], exists
    right = logits.argmax(-1) == class_labels(subject, batch).to(logits.device)
    return torch.stack([losses, right.to(losses.dtype)]), exists


def class_labels(subject: Subject, batch: Batch) -> Int[Tensor, " batch"]:
    """The label of each example, which must be one of the subject's classes."""
    classes = len(subject.labels or ())
    for example in batch.examples:
        if example.label is None:
            raise UserError(
                f"The text {example.id!r} has no label, which the loss of a classifier needs. Give a labelled corpus "
                "(of a table: --label-column)."
            )
        if not 0 <= example.label < classes:
            raise UserError(
                f"The text {example.id!r} has label {example.label}, but {subject.name!r} has {classes} classes "
                f"(0 to {classes - 1}). Give the corpus that the classifier was trained for."
            )
    return torch.tensor([example.label for example in batch.examples])


def next_pieces(tokens: Tokens, end: int | None, limit: int | None) -> Int[Tensor, "batch token"]:
    """What each position predicts: the next piece; the last one `end`, or nothing where there is no end.

    A text of `limit` pieces may have been cut there, so that its last position predicts nothing known.
    """
    labels = torch.full_like(tokens.ids, IGNORED)
    both = tokens.mask[:, 1:] & tokens.mask[:, :-1]
    labels[:, :-1] = tokens.ids[:, 1:].masked_fill(~both, IGNORED)
    if end is not None:
        lengths = tokens.lengths
        whole = lengths < limit if limit is not None else torch.ones_like(lengths, dtype=torch.bool)
        rows = torch.arange(len(labels), device=labels.device)[whole]
        labels[rows, last_positions(tokens.mask)[whole]] = end
    return labels


def masked(
    subject: Subject, batch: Batch, *, share: float = 0.15, seed: int = 0
) -> tuple[Batch, Int[Tensor, "batch token"]]:
    """The batch with some pieces of each text replaced by the mask token, and what stood there.

    Which pieces depends on the seed and the example's id alone, so not on the batch; at least one in a text that has
    any. Special tokens are never masked.
    """
    mask = subject.tokenizer.mask_token_id
    if mask is None:
        raise UserError(f"The tokenizer of {subject.name!r} has no mask token, so there is no masked-LM loss.")
    tokens = batch.source
    chosen = torch.zeros_like(tokens.mask)
    for text, example in enumerate(batch.examples):
        places = tokens.mask[text].nonzero()[:, 0]
        candidates = (~tokens.special[text][places]).nonzero()[:, 0].tolist()
        ranked = sorted(candidates, key=lambda number: _draw(seed, example.id, number))
        chosen[text, places[ranked[: max(1, round(share * len(ranked)))]]] = True
    ids = tokens.ids.masked_fill(chosen, mask)
    hidden = replace(batch, inputs={**batch.inputs, "input_ids": ids}, source=tokens.replaced(ids=ids))
    return hidden, tokens.ids.masked_fill(~chosen, IGNORED)


def drawn(mask: Bool[Tensor, "batch token"], batch: Batch, most: int, seed: int) -> Bool[Tensor, "batch token"]:
    """At most so many of each text's positions; which ones depends on the seed and the example's id alone."""
    out = torch.zeros_like(mask)
    for text, example in enumerate(batch.examples):
        places = mask[text].nonzero()[:, 0]
        ranked = sorted(range(len(places)), key=lambda number: _draw(seed, example.id, number))
        out[text, places[ranked[:most]]] = True
    return out


def _draw(seed: int, text: str, number: int) -> bytes:
    return hashlib.blake2b(f"{seed}\0{text}\0{number}".encode(), digest_size=8).digest()


def _references(batch: Batch) -> Tokens:
    for example in batch.examples:
        if example.target is None:
            raise UserError(
                f"The text {example.id!r} has no reference translation, which the loss needs. "
                "Give a corpus with targets."
            )
    assert batch.target is not None
    return batch.target


def _end(subject: Subject) -> int:
    end = subject.tokenizer.eos_token_id
    if end is None:
        raise UserError(
            f"The tokenizer of {subject.name!r} has no end-of-sentence token, which every translation needs."
        )
    return int(end)
