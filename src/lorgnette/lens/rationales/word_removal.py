"""A batch run again without some of its words, or with them alone: on its ids, never on text tokenised again."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.lens.rationales.faithfulness import deleted, masked, packed, predicted_drop
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.types import Json

PERTURBATIONS = ("delete", "mask")
TOKENS = 4096
"""Copies of a batch, each without other words, run together up to this many tokens."""


def rows_of(batch: Batch, rows: Sequence[int]) -> Batch:
    """Some texts of a batch, without the padding that only the other texts needed."""
    source = batch.source
    width = int(source.mask[list(rows)].sum(-1).max())

    def cut(tensor: Tensor) -> Tensor:
        return tensor[list(rows), :width]

    tokens = Tokens(
        ids=cut(source.ids),
        mask=cut(source.mask),
        special=cut(source.special),
        categories={name: cut(kind) for name, kind in source.categories.items()},
        text=TokenTexts.of(
            cut(source.word),
            tuple(source.pieces[row] for row in rows),
            tuple(source.words[row] for row in rows),
        ),
        patches=None if source.patches is None else source.patches.changed(cut),
    )
    inputs = {name: cut(tensor) for name, tensor in batch.inputs.items()}
    return replace(batch, inputs=inputs, source=tokens, examples=tuple(batch.examples[row] for row in rows))


class WordRemoval:
    """What the predicted class of each text (or the class `target`) loses when words go, all pieces of a word together.

    Special tokens stay. `delete`: the others close up, as in ERASER; `mask`: the mask token stands in their place. A
    text of which nothing would be left (a model without special tokens) is not measured.
    """

    def __init__(
        self, subject: Subject, batch: Batch, logits: Float[Tensor, "batch label"], how: str, target: int | None = None
    ) -> None:
        self.subject, self.batch, self.how, self.target = subject, batch, how, target
        self.whole: Tensor = logits.detach().double().softmax(-1)
        self.mask_id = subject.tokenizer.mask_token_id
        if how == "mask" and self.mask_id is None:
            raise UserError(f"The tokenizer of {subject.name!r} has no mask token. Use perturbation='delete'.")

    def drops(
        self, chosen: Bool[Tensor, "pick batch word"]
    ) -> tuple[Float[Tensor, "kind pick batch"], Bool[Tensor, "kind pick batch"]]:
        """Without the chosen words (comprehensiveness), with them alone (sufficiency); and which could be measured."""
        word = self.batch.source.word.expand(len(chosen), -1, -1)
        inside = (word >= 0) & self.batch.source.mask
        first = chosen.to(word.device).gather(2, word.clamp(min=0)) & inside
        parts = [self._kind(gone) for gone in (first, inside & ~first)]
        return torch.stack([drops for drops, _ in parts]), torch.stack([defined for _, defined in parts])

    def _kind(self, gone: Bool[Tensor, "pick batch token"]) -> tuple[Tensor, Tensor]:
        together = max(1, TOKENS // gone[0].numel())
        parts = [self._drops(some) for some in gone.split(together)]
        return torch.cat([drops for drops, _ in parts]), torch.cat([defined for _, defined in parts])

    @torch.no_grad()
    def _drops(
        self, gone: Bool[Tensor, "pick batch token"]
    ) -> tuple[Float[Tensor, "pick batch"], Bool[Tensor, "pick batch"]]:
        """One pass over copies of the batch, each without other tokens."""
        defined = (self.batch.source.mask & ~gone).any(-1)
        inputs = self._inputs((gone & defined[..., None]).flatten(0, 1), len(gone))
        logits = self.subject.run(replace(self.batch, inputs=inputs), return_dict=True).logits
        changed = logits.double().softmax(-1)
        drop = predicted_drop(self.whole.repeat(len(gone), 1), changed, self.target)
        return drop.unflatten(0, gone.shape[:2]).cpu(), defined.cpu()

    def _inputs(self, gone: Bool[Tensor, "text token"], copies: int) -> Json:
        inputs = {name: tensor.repeat(copies, 1) for name, tensor in self.batch.inputs.items()}
        ids, real = inputs["input_ids"], self.batch.source.mask.repeat(copies, 1)
        if self.how == "mask":
            return {**inputs, "input_ids": masked(ids, gone, self.mask_id)}
        ids, mask = deleted(ids, real, gone, self.subject.encoder.padding)
        changed = {"input_ids": ids, "attention_mask": mask.to(inputs["attention_mask"].dtype)}
        if "token_type_ids" in inputs:
            changed["token_type_ids"] = packed(inputs["token_type_ids"], real & ~gone, 0)
        return changed
