"""Texts with pictures: a model's own processor makes ids and pixels of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lorgnette.errors import UserError, outside
from lorgnette.texts.batch import Batch
from lorgnette.texts.continuation import GENERATED, PROMPT
from lorgnette.texts.encoding import Encoder, refuse_half_characters
from lorgnette.texts.example import Example
from lorgnette.texts.patches import SPECIAL, TEXT, parts_of, patches_of, pictured_in
from lorgnette.texts.sides import Encoded, Side, SideWords
from lorgnette.texts.word_maps import runs_of, spoken
from lorgnette.types import PretrainedConfig, ProcessorMixin


class PictureEncoder(Encoder):
    """An encoder for a model's processor: its tokenizer for texts alone, all of it for texts with a picture.

    A text that does not say where its picture stands has it first: by the processor's chat template, if it has one.
    """

    def __init__(self, processor: ProcessorMixin, config: PretrainedConfig, limit: int | None) -> None:
        super().__init__(processor.tokenizer, config, limit)
        self.processor = processor

    def encode_all(self, examples: Sequence[Example], *, truncate: bool = False, words: bool = False) -> list[Encoded]:
        """Texts without a picture together, those with one by one."""
        plain = iter(super().encode_all([e for e in examples if e.image is None], truncate=truncate, words=words))
        return [next(plain) if e.image is None else self.encode(e, truncate=truncate) for e in examples]

    def encode(self, example: Example, *, truncate: bool = False) -> Encoded:
        if example.image is None:
            return super().encode(example, truncate=truncate)
        if example.pair is not None or example.target is not None or example.parts:
            raise UserError(
                f"The text {example.id!r} has a picture and a pair, a target or parts: give the text alone."
            )
        refuse_half_characters(example)
        picture = example.image.open()
        with outside(f"The text {example.id!r} cannot be encoded with its picture", "Correct it, or leave it out."):
            given = dict(self.processor(text=[self._prompt(example.text)], images=[picture], return_tensors="pt"))
        ids = given.pop("input_ids")
        for name in ("attention_mask", "labels"):  # the batch has its own mask, and nothing is trained
            given.pop(name, None)
        if self.limit is not None and ids.shape[1] > self.limit:
            raise UserError(
                f"The text {example.id!r} has {ids.shape[1]} tokens with its picture and the model takes {self.limit}. "
                "Make the picture smaller, or the text shorter."
            )
        return Encoded(example, self._read(ids), seen=given)

    def _prompt(self, text: str) -> str:
        """The text with a place for its picture."""
        mark = getattr(self.processor, "image_token", None)
        if mark is None or mark in text:
            return text
        if getattr(self.processor, "chat_template", None):
            said = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
            return str(self.processor.apply_chat_template(said, add_generation_prompt=True))
        return f"{mark}\n{text}"

    def _read(self, ids: Tensor) -> Side:
        """The ids as one side, with the words of the text."""
        pictured = torch.stack([torch.zeros_like(ids[0], dtype=torch.bool), *self._pictured(ids, 0)]).any(0).numpy()
        numbers = ids[0].numpy()
        special = np.isin(numbers, sorted(self.specials)) & ~pictured
        inner = ~special & ~pictured
        decoded, ends = spoken(self.tokenizer, numbers[inner].tolist())
        word = np.full(len(numbers), -1, dtype=np.int64)
        word[inner] = runs_of(decoded, ends)
        return Side(numbers, special, SideWords.of(word.tolist(), decoded.split()))

    def _pictured(self, ids: Tensor, text: int) -> list[Tensor]:
        return [where[text] for where in pictured_in(ids, self.config).values()]

    def collate(self, encoded: list[Encoded], step: int = 1) -> Batch:
        """Texts padded to the longest, with the pixels of all their pictures."""
        batch = super().collate(encoded, step)
        with_pictures = [one for one in encoded if one.seen]
        if not with_pictures:
            return batch
        source, inputs = batch.source, dict(batch.inputs)
        for name, first in with_pictures[0].seen.items():
            if first.shape[:2] == (1, len(with_pictures[0].source)):
                rows = [one.seen[name] if one.seen else first[:, :0] for one in encoded]
                inputs[name] = torch.cat([_wider(row, 1, source.ids.shape[1]) for row in rows])
                continue
            if first.dim() > 4 and len(with_pictures) < len(encoded):
                raise UserError("Some of these texts have a picture and others none, which this model does not take.")
            tiles = max(one.seen[name].shape[1] for one in with_pictures) if first.dim() > 1 else 0
            same = name != "pixel_values" or first.dim() <= 4
            inputs[name] = torch.cat(
                [one.seen[name] if same else _wider(one.seen[name], 1, tiles) for one in with_pictures]
            )
        pictured = pictured_in(source.ids, self.config)
        if pictured:
            kinds = {**source.categories, **parts_of(pictured, source.mask, source.special)}
            if GENERATED in kinds:  # a part of its own, beside those of the prompt
                kinds |= {name: kinds[name] & ~kinds[GENERATED] for name in (TEXT, SPECIAL)}
                del kinds[PROMPT]
            patches = patches_of(pictured, inputs, self.config, None)
            source = source.replaced(categories=kinds, patches=patches)
        return replace(batch, inputs=inputs, source=source)


def _wider(tensor: Tensor, dim: int, size: int) -> Tensor:
    """Zeros behind, up to this size: padding of texts, and of tiles, which processors write so too."""
    if tensor.shape[dim] == size:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = size - shape[dim]
    return torch.cat([tensor, tensor.new_zeros(shape)], dim)
