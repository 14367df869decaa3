"""A text with a model's continuation: the generated pieces as they are, never tokenised again."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from torch.nn import functional as F

from lorgnette.errors import UserError
from lorgnette.texts.encoding import Encoder
from lorgnette.texts.sides import Encoded, Side
from lorgnette.texts.word_maps import by_tokenizer, spoken

PROMPT, GENERATED = "prompt", "generated"
"""The parts of a text that a model has continued."""


def continued(encoder: Encoder, encoded: Encoded, ids: Sequence[int]) -> Encoded:
    """The prompt and these ids as one text; words begin anew where the generated part does."""
    if not encoder.tokenizer.is_fast:
        raise UserError(f"{type(encoder.tokenizer).__name__} has no character offsets, so it cannot continue a text.")
    prompt = encoded.source
    own = prompt.ids.tolist()
    text, ends = spoken(encoder.tokenizer, ids, own)
    special = [number in encoder.specials for number in ids]
    word, words = _words(encoder, text, ends, special)
    shifted = [-1 if number < 0 else number + len(prompt.words) for number in word]
    side = Side.of(
        [*own, *ids],
        [*prompt.special.tolist(), *special],
        [*prompt.word.tolist(), *shifted],
        (*prompt.words, *words),
    )
    side.types = None if prompt.types is None else [*prompt.types, *([prompt.types[-1]] * len(ids))]
    side.parts = [*(prompt.parts or [PROMPT] * len(prompt)), *([GENERATED] * len(ids))]
    seen = {
        name: F.pad(each, (0, len(ids))) if each.shape == (1, len(prompt)) else each
        for name, each in encoded.seen.items()
    }
    example = replace(encoded.example, text=encoded.example.text + text)
    return replace(encoded, example=example, source=side, seen=seen)


def _words(encoder: Encoder, text: str, ends: list[int], special: list[bool]) -> tuple[list[int], list[str]]:
    """The word of each piece, numbered from 0, by the words that the tokenizer sees in the text."""
    cut = encoder.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    places = cut["offset_mapping"]
    number, spans = by_tokenizer([text], [cut.word_ids()], [places])[0]
    names = spans.names()
    owner = [-1] * (len(text) + 1)
    for (start, end), word in zip(places, number.tolist(), strict=True):
        owner[start:end] = [word] * (end - start)
    of_piece: list[int] = []
    for (start, end), flag in zip(pairwise([0, *ends]), special, strict=True):
        inside = [at for at in range(start, end) if not text[at].isspace()] or list(range(start, end))
        # A piece that is a part of a character ends where it began: it belongs to the word that is being written.
        own = owner[inside[-1]] if inside else owner[min(start, max(len(text) - 1, 0))]
        of_piece.append(-1 if flag else own)
    used = sorted({word for word in of_piece if word >= 0})
    order = {word: place for place, word in enumerate(used)}
    return [order.get(word, -1) for word in of_piece], [names[word] for word in used]
