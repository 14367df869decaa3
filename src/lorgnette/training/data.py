"""From examples to batches: ids, buckets of similar length, padding."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, IterableDataset

from lorgnette.errors import UserError
from lorgnette.texts import Corpus, Example
from lorgnette.texts.encoding import Encoder
from lorgnette.texts.sides import Side
from lorgnette.types import PretrainedConfig, PreTrainedTokenizerBase

T = TypeVar("T")
Item = dict[str, Any]
"""One text: input_ids, labels, perhaps token_type_ids and maps over tokens ("gold", "heuristic")."""

MAPS = ("gold", "heuristic")
CHUNK = 1024
BATCH_TOKENS = 2048
Mapper = Callable[[Example, Sequence[str]], Sequence[float]]
"""A value for each word of an example, as the tokenizer's word map numbers them."""


@runtime_checkable
class Reads(Protocol):
    """Turns examples into items: `Reader`, or `PairReader` for translations."""

    max_length: int | None

    def read(self, examples: Iterable[Example]) -> Iterator[tuple[Item, bool]]: ...


@dataclass
class Reader:
    """Turns examples into items as `look` reads them; what is cut to `max_length` is counted, never silent.

    `maps` says which values per word the penalties want per token; a piece has the value of its word.
    """

    tokenizer: PreTrainedTokenizerBase
    config: PretrainedConfig
    max_length: int | None
    maps: dict[str, Mapper] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._encoder = Encoder(self.tokenizer, self.config, self.max_length)

    def read(self, examples: Iterable[Example]) -> Iterator[tuple[Item, bool]]:
        """Items in order, each with whether it was cut. Memory: one chunk."""
        stream = iter(examples)
        while chunk := list(islice(stream, CHUNK)):
            for encoded in self._encoder.encode_all(chunk, truncate=True, words=bool(self.maps)):
                yield self._item(encoded.example, encoded.source), encoded.source.cut

    def _item(self, example: Example, side: Side) -> Item:
        if not len(side):
            raise UserError(f"the text {example.id!r} has no tokens: remove empty texts.")
        self._encoder.refuse_unknown([int(side.ids.max())])
        # int32: half the memory of what the model will get
        item: Item = {"input_ids": torch.from_numpy(side.ids.astype(np.int32)), "labels": example.label}
        if side.types is not None:
            item["token_type_ids"] = torch.tensor(side.types)
        for name, values_of in self.maps.items():
            values = values_of(example, side.words)
            item[name] = torch.tensor([float(values[word]) if word >= 0 else 0.0 for word in side.word.tolist()])
        return item


class Items(Dataset[Item]):
    """Texts in memory. With `longest_first` they are sorted, so that a batch of evaluation has little padding."""

    def __init__(self, reader: Reads, examples: Iterable[Example], *, longest_first: bool = False) -> None:
        self.items: list[Item] = []
        self.cut = 0
        for item, cut in reader.read(examples):
            self.items.append(item)
            self.cut += cut
        if longest_first:
            self.items.sort(key=lambda item: -len(item["input_ids"]))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Item:
        return self.items[index]

    def label_counts(self) -> Counter[int | None]:
        return Counter(item["labels"] for item in self.items)

    @property
    def tokens(self) -> int:
        return sum(len(item["input_ids"]) for item in self.items)


class Bucketed(IterableDataset[Item]):
    """The training texts of one epoch, in an order that depends on nothing but (seed, epoch).

    Texts are shuffled; within each run of `POOL` batches they are sorted by length and cut into batches, which are
    shuffled again. So a batch holds texts of similar length, and a run that goes on in the middle of an epoch sees what
    it would have seen.
    """

    POOL = 50

    def __init__(self, items: Sequence[Item], batch_size: int, seed: int) -> None:
        self.items, self.batch_size, self.seed, self.epoch = items, batch_size, seed, 0

    def __len__(self) -> int:
        return len(self.items)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def _draw(self) -> torch.Generator:
        return torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)

    def __iter__(self) -> Iterator[Item]:
        draw = self._draw()
        order = torch.randperm(len(self.items), generator=draw).tolist()
        pool = self.POOL * self.batch_size
        for start in range(0, len(order), pool):
            for number in bucketed(
                order[start : start + pool], lambda i: len(self.items[i]["input_ids"]), self.batch_size, draw
            ):
                yield self.items[number]


class Streamed(Bucketed):
    """`Bucketed` for texts that do not fit in memory: each epoch reads the corpus again, a pool of batches at a time.

    Only texts within a pool change places, so a corpus sorted by class should be shuffled first.
    """

    def __init__(self, reader: Reader, corpus: Corpus, count: int, batch_size: int, seed: int) -> None:
        super().__init__((), batch_size, seed)
        self.reader, self.corpus, self.count = reader, corpus, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Item]:
        draw = self._draw()
        stream = (item for item, _ in self.reader.read(self.corpus))
        while pool := list(islice(stream, self.POOL * self.batch_size)):
            shuffled = [pool[number] for number in torch.randperm(len(pool), generator=draw).tolist()]
            yield from bucketed(shuffled, lambda item: len(item["input_ids"]), self.batch_size, draw)


def bucketed(pool: Sequence[T], length: Callable[[T], int], batch_size: int, draw: torch.Generator) -> Iterator[T]:
    """The pool in batches of similar length, the batches in random order; the one that is not full comes last."""
    by_length = sorted(pool, key=length)  # stable: texts of one length stay shuffled
    full = len(by_length) // batch_size
    for number in torch.randperm(full, generator=draw).tolist():
        yield from by_length[number * batch_size : (number + 1) * batch_size]
    yield from by_length[full * batch_size :]


def together(items: Items | Sequence[Item], numbers: Sequence[int], most: int = 64) -> Iterator[list[int]]:
    """Items of an evaluation in batches of at most so many texts and, beyond one text, `BATCH_TOKENS` tokens."""
    batch: list[int] = []
    longest = 0
    for number in numbers:
        length = len(items[number]["input_ids"])
        if batch and (len(batch) == most or (len(batch) + 1) * max(longest, length) > BATCH_TOKENS):
            yield batch
            batch, longest = [], 0
        batch.append(number)
        longest = max(longest, length)
    if batch:
        yield batch


@dataclass(frozen=True)
class Collator:
    """Pads to the longest of the batch, on the right."""

    padding: int

    def __call__(self, items: list[Item]) -> dict[str, Tensor]:
        ids = _padded(items, "input_ids", self.padding).long()
        lengths = torch.tensor([len(item["input_ids"]) for item in items])
        batch = {
            "input_ids": ids,
            "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long(),
            "labels": torch.tensor([item["labels"] for item in items]),
        }
        return {**batch, **{key: _padded(items, key, 0) for key in items[0].keys() - batch.keys()}}


def _padded(items: list[Item], key: str, value: int) -> Tensor:
    return pad_sequence([item[key] for item in items], batch_first=True, padding_value=value)
