"""From pairs of sentences to batches: ids of both sides, and the decoder's input shifted behind its start token."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lorgnette.errors import UserError
from lorgnette.texts import Example
from lorgnette.training.data import CHUNK, Item
from lorgnette.types import PreTrainedTokenizerBase

IGNORED = -100
"""The label of padding, which no loss counts."""


@dataclass(frozen=True)
class PairReader:
    """Turns sentences and their translations into items; what is cut to `max_length` is counted, never silent.

    `target_tokenizer` cuts the translations where they have pieces of their own; None is the tokenizer of the source.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int | None
    target_tokenizer: PreTrainedTokenizerBase | None = None

    def read(self, examples: Iterable[Example]) -> Iterator[tuple[Item, bool]]:
        """Items in order, each with whether one of its sides was cut. Memory: one chunk."""
        stream = iter(examples)
        while chunk := list(islice(stream, CHUNK)):
            targets = [translation_of(example) for example in chunk]
            sources = self.tokenizer([example.text for example in chunk], verbose=False)["input_ids"]
            other = self.target_tokenizer or self.tokenizer
            wanted = other(text_target=targets, verbose=False)["input_ids"]
            for example, source, target in zip(chunk, sources, wanted, strict=True):
                yield self._fitted(example, source, target)

    def _fitted(self, example: Example, source: list[int], target: list[int]) -> tuple[Item, bool]:
        if len(source) < 2 or len(target) < 2:  # the end of the sentence alone
            raise UserError(f"the pair {example.id!r} has an empty side: remove empty sentences.")
        limit = self.max_length
        cut = limit is not None and max(len(source), len(target)) > limit
        item = {"input_ids": _ids(source, limit), "labels": _ids(target, limit)}
        return item, cut


def translation_of(example: Example) -> str:
    if example.target is None:
        raise UserError(
            f"the text {example.id!r} has no translation: a translation model is trained on a corpus of pairs, such as "
            "multi30k:en-fr, or a table with its columns named."
        )
    return example.target


def _ids(ids: list[int], limit: int | None) -> Tensor:
    """Cut to the limit, the end of the sentence kept; half the memory of what the model will get."""
    cut = ids if limit is None or len(ids) <= limit else [*ids[: limit - 1], ids[-1]]
    return torch.tensor(cut, dtype=torch.int32)


@dataclass(frozen=True)
class PairCollator:
    """Pads both sides on the right; the decoder reads the translation behind `start` and predicts it."""

    padding: int
    start: int
    target_padding: int | None = None

    def __call__(self, items: list[Item]) -> dict[str, Tensor]:
        padding = self.padding if self.target_padding is None else self.target_padding
        sources = [item["input_ids"].long() for item in items]
        targets = [item["labels"].long() for item in items]
        first = torch.tensor([self.start])
        ids = pad_sequence(sources, batch_first=True, padding_value=self.padding)
        lengths = torch.tensor([len(one) for one in sources])
        return {
            "input_ids": ids,
            "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long(),
            "decoder_input_ids": pad_sequence(
                [torch.cat([first, one[:-1]]) for one in targets], batch_first=True, padding_value=padding
            ),
            "labels": pad_sequence(targets, batch_first=True, padding_value=IGNORED),
        }
