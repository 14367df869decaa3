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
from lorgnette.texts.example import Example, Span
from lorgnette.texts.parts import parts_of as spoken_by
from lorgnette.texts.parts import written
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
        if example.pair is not None or example.target is not None:
            raise UserError(f"The text {example.id!r} has a picture and a pair or a target: give the text alone.")
        refuse_half_characters(example)
        picture, example = example.image.open(), written(example, self.processor)
        prompt = self._prompt(example)
        more = {"add_special_tokens": False} if self._begun(prompt.text) else {}
        with outside(f"The text {example.id!r} cannot be encoded with its picture", "Correct it, or leave it out."):
            given = dict(self.processor(text=[prompt.text], images=[picture], return_tensors="pt", **more))
        ids = given.pop("input_ids")
        for name in ("attention_mask", "labels"):  # the batch has its own mask, and nothing is trained
            given.pop(name, None)
        if self.limit is not None and ids.shape[1] > self.limit:
            raise UserError(
                f"The text {example.id!r} has {ids.shape[1]} tokens with its picture and the model takes {self.limit}. "
                "Make the picture smaller, or the text shorter."
            )
        side = self._read(ids)
        if example.parts:
            side.parts = self._parts(prompt, side)
        return Encoded(example, side, seen=given)

    @property
    def mark(self) -> str | None:
        """What stands for a picture in a text."""
        return getattr(self.processor, "image_token", None)

    def _prompt(self, example: Example) -> Example:
        """The text with a place for its picture."""
        text = example.text
        if self.mark is None or self.mark in text:
            return example
        if getattr(self.processor, "chat_template", None) and not example.parts:
            said = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
            return Example(example.id, str(self.processor.apply_chat_template(said, add_generation_prompt=True)))
        before = f"{self.mark}\n"
        parts = tuple(Span(name, start + len(before), end + len(before)) for name, start, end in example.parts)
        return Example(example.id, before + text, parts=parts)

    def _begun(self, text: str) -> bool:
        """Whether the chat template has written the token that begins a text, so that it is not put there again."""
        begin = self.tokenizer.bos_token
        return begin is not None and text.startswith(begin)

    def _parts(self, example: Example, side: Side) -> list[str]:
        """The part of each token: what stands before and behind the picture must be cut as it is by itself."""
        before, mark, behind = example.text.partition(self.mark or "")
        ids, names = side.ids.tolist(), [""] * len(side)
        start, end = 0, len(ids)
        for text, shift in ((before, 0), (behind, len(before) + len(mark))):
            cut = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=self.tokenizer.is_fast)
            own = cut["input_ids"]
            places = [len(ids) - len(own)] if shift else [0, 1]  # the first may be put there by the tokenizer
            at = next((place for place in places if ids[place : place + len(own)] == own), None)
            if at is None or not self.tokenizer.is_fast:
                raise UserError(
                    f"{type(self.processor).__name__} rewrites what stands around a picture, so it is unknown which "
                    f"tokens are of which part in {example.id!r}. Give the text without parts and without a chat."
                )
            offsets = [(first + shift, last + shift) for first, last in cut["offset_mapping"]]
            names[at : at + len(own)] = spoken_by(offsets, [0] * len(own), example.parts, example.text) or []
            start, end = (start, at) if shift else (at + len(own), end)
        around = next((span.name for span in example.parts if span.start <= len(before) < span.end), "")
        ids_between = torch.from_numpy(side.ids[start:end])[None]
        pictured = torch.stack([torch.zeros_like(ids_between[0], dtype=torch.bool), *self._pictured(ids_between, 0)])
        names[start:end] = ["" if is_patch else around for is_patch in pictured.any(0).tolist()]
        return names

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
                raise UserError(
                    "Some of these texts have a picture and some do not; this model cannot mix them in a batch."
                )
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
                kinds.pop(PROMPT, None)  # a chat has its own parts
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
