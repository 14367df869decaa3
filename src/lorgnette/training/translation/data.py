"""From pairs of sentences to batches: ids of both sides, and the decoder's input shifted behind its start token."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lorgnette.errors import UserError
from lorgnette.texts import Example
from lorgnette.texts.encoding import Encoder
from lorgnette.training.data import Item
from lorgnette.types import PretrainedConfig, PreTrainedTokenizerBase

IGNORED = -100
"""The label of padding, which no loss counts."""


@dataclass
class PairReader:
    """Turns sentences and their translations into items as `look` reads them; what is cut is counted, never silent.

    `target_tokenizer` cuts the translations where they have pieces of their own; None is the tokenizer of the source.
    """

    tokenizer: PreTrainedTokenizerBase
    config: PretrainedConfig
    max_length: int | None
    target_tokenizer: PreTrainedTokenizerBase | None = None

    def __post_init__(self) -> None:
        self._source = Encoder(self.tokenizer, self.config, self.max_length)
        self._target = Encoder(self.target_tokenizer or self.tokenizer, self.config, self.max_length)

    def read(self, examples: Iterable[Example]) -> Iterator[tuple[Item, bool]]:
        """Items in order, each with whether one of its sides was cut."""
        for example in examples:
            translation_of(example)  # refuses a text without one
            sides = (self._source.source(example, truncate=True), self._target.reference(example, truncate=True))
            if min(map(len, sides)) < 2:  # the end of the sentence alone
                raise UserError(f"the pair {example.id!r} has an empty side: remove empty sentences.")
            # int32: half the memory of what the model will get
            source, target = (torch.from_numpy(side.ids.astype(np.int32)) for side in sides)
            yield {"input_ids": source, "labels": target}, any(side.cut for side in sides)


def translation_of(example: Example) -> str:
    if example.target is None:
        raise UserError(
            f"the text {example.id!r} has no translation: a translation model is trained on a corpus of pairs, such as "
            "multi30k:en-fr, or a table with its columns named."
        )
    return example.target


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
