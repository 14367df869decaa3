"""Words in random order: the control for claims about word order."""

import hashlib
import random
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lorgnette.texts.batch import Batch, TokenTexts, spans

Mask = Bool[Tensor, " token"]


def drawn_order(size: int, key: str) -> list[int]:
    """A permutation of 0 … size − 1 that depends on the key alone."""
    order = list(range(size))
    random.Random(hashlib.sha256(key.encode()).digest()).shuffle(order)
    return order


def shuffled_words(batch: Batch, *, seed: int = 0) -> Batch:
    """The same batch with the words of every source text in an order drawn from the seed and the text's id.

    Special tokens stay where they are, and words between two of them stay there; the pieces of a word stay together.
    Nothing is tokenised again. A piece still says which word of the text it belongs to, so that gold trees hold.
    """
    source = batch.source
    words, special = source.ordinary.cpu(), (source.special & source.mask).cpu()
    rows = [_places(source.word[t].cpu(), words[t], special[t], f"{seed} {batch.examples[t].id}")
            for t in range(len(batch))]  # fmt: skip
    places = torch.stack(rows).to(source.ids.device)
    moved = source.changed(lambda tensor: tensor.gather(1, places))
    categories = {name: source.categories[name] for name in ("first", "last") if name in source.categories}
    pieces = tuple(map(_moved_pieces, source.pieces, rows, source.mask.cpu()))
    kinds = {**moved.categories, **categories}
    text = TokenTexts.of(source.word.gather(1, places), pieces, source.words)
    moved = moved.replaced(mask=source.mask, special=source.special, categories=kinds, text=text)
    return replace(batch, inputs=batch.inputs | {"input_ids": moved.ids}, source=moved)


def _places(word: Int[Tensor, " token"], ordinary: Mask, special: Mask, key: str) -> Int[Tensor, " token"]:
    """The original position of each token of the shuffled text."""
    unit, places = spans(word), torch.arange(len(word))
    run = special.cumsum(0)
    for number in run[ordinary].unique().tolist():
        inside = (ordinary & (run == number)).nonzero()[:, 0]
        units = [inside[unit[inside] == each] for each in unit[inside].unique().tolist()]
        order = drawn_order(len(units), f"{key} {number}")
        places[inside] = torch.cat([units[each] for each in order])
    return places


def _moved_pieces(pieces: tuple[str, ...], places: Int[Tensor, " token"], real: Mask) -> tuple[str, ...]:
    """The pieces of one text in their new order. A piece has a number among those of its text, wherever padding is."""
    number = real.cumsum(0) - 1
    return tuple(pieces[each] for each in number[places[real]].tolist())
