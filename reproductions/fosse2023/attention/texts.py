"""The test texts of a corpus as ids behind <cls>, in batches of similar length, and the groups that were looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.texts import Example, corpus
from lorgnette.texts.annotated import YELP_TESTS
from lorgnette.texts.encoding import Encoder
from lorgnette.training.preparation import Prepared

PER_CLASS = 333  # of the analysis subset: the first of each class
YELP_SHORT = 300  # reviews of the regularisation table
_CELLS = 2**22  # of attention matrices in a batch
_MOST = 512


@dataclass(frozen=True)
class Text:
    """One test text as the model sees it; `word` is −1 for <cls>."""

    number: int
    ids: Int[Tensor, " token"]
    word: Int[Tensor, " token"]
    example: Example


@dataclass(frozen=True)
class Texts:
    """Some texts, padded."""

    numbers: Int[Tensor, " batch"]
    ids: Int[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]
    word: Int[Tensor, "batch token"]


def test_texts(
    prepared: Prepared, *, name: str, data: str | None, limit: int | None, max_length: int
) -> tuple[Text, ...]:
    """All test texts, in the order of the corpus; one that would be cut is an error."""
    folder = str(getattr(prepared, "folder", ""))
    return _read(_Vocabulary(folder, prepared), name, data, limit, max_length)


class _Vocabulary:
    """What the ids depend on, as a key of the cache: models of one corpus share it."""

    def __init__(self, folder: str, prepared: Prepared) -> None:
        self.folder, self.prepared = folder, prepared

    def __hash__(self) -> int:
        return hash(self.folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Vocabulary) and self.folder == other.folder


@lru_cache(maxsize=3)
def _read(vocabulary: _Vocabulary, name: str, data: str | None, limit: int | None, longest: int) -> tuple[Text, ...]:
    builder = vocabulary.prepared.builder
    config: SelfAttentionClassifierConfig = builder.config
    encoder = Encoder(builder.tokenizer, config, None)
    found = []
    for number, example in enumerate(corpus(name, split="test", data=data, limit=limit)):
        side = encoder.encode(example).source  # the stored tokenizer puts no <cls> there
        if len(side) >= longest:
            raise ValueError(f"the test text {example.id!r} has {len(side)} tokens, more than {longest}")
        ids, word = torch.tensor([config.cls_token_id, *side.ids.tolist()]), torch.tensor([-1, *side.word.tolist()])
        found.append(Text(number, ids, word, example))
    return tuple(found)


def batches(texts: Sequence[Text], device: torch.device | str, padding: int = 0) -> Iterator[Texts]:
    """Longest first, so that there is little padding; as many as fit."""
    order = sorted(texts, key=lambda text: -len(text.ids))
    while order:
        room = max(1, min(_MOST, _CELLS // len(order[0].ids) ** 2))
        chosen, order = order[:room], order[room:]
        lengths = torch.tensor([len(text.ids) for text in chosen])
        ids = pad_sequence([text.ids for text in chosen], batch_first=True, padding_value=padding)
        word = pad_sequence([text.word for text in chosen], batch_first=True, padding_value=-1)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        numbers = torch.tensor([text.number for text in chosen])
        yield Texts(numbers, ids.to(device), mask.to(device), word)


def groups(name: str, texts: Sequence[Text]) -> dict[str, list[int]]:
    """Numbers of the texts over which means are taken.

    `published`: the first 333 of each class, as in the released code; of YelpHat the three test sets together.
    `regularisation`: what the table by λ is about, for YelpHat 300 reviews of 50 words. `whole`: all.
    """
    everything = [text.number for text in texts]
    if name == "yelphat":
        short = [text.number for text in texts if text.example.extra.get("part") == YELP_TESTS["test50"]]
        return {"published": everything, "regularisation": short[:YELP_SHORT] or everything, "whole": everything}
    counts: dict[int | None, int] = {}
    first = []
    for text in texts:
        label = text.example.label
        counts[label] = counts.get(label, 0) + 1
        if counts[label] <= PER_CLASS:
            first.append(text.number)
    return {"published": first, "regularisation": first, "whole": everything}
