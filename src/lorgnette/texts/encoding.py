"""From examples to token ids: what the model will see, and which word each piece belongs to."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from lorgnette.errors import UserError, outside
from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.texts.example import TEMPLATE, Example, Span
from lorgnette.texts.parts import MESSAGES, PAIR, part_masks, parts_of, written
from lorgnette.texts.sides import (
    Encoded,
    Row,
    Sequences,
    Side,
    SideWords,
    WordMap,
    WordSpans,
    positions_within,
)
from lorgnette.texts.token_kinds import TokenKinds
from lorgnette.texts.word_maps import runs_of, spoken, word_maps
from lorgnette.types import PretrainedConfig, PreTrainedTokenizerBase

if TYPE_CHECKING:
    from tokenizers import Encoding


class Encoder:
    """A model's tokenizer with two additions: word maps for every family, and no silent truncation."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, limit: int | None) -> None:
        self.tokenizer, self.config, self.limit = tokenizer, config, limit
        # A decoder with a classifier finds the end of a text by the config's id.
        ids = (tokenizer.pad_token_id, getattr(config, "pad_token_id", None), 0)
        self.padding: int = next(int(number) for number in ids if number is not None and number >= 0)
        self.translates: bool = bool(getattr(config, "is_encoder_decoder", False))
        self.kinds: TokenKinds = TokenKinds(tokenizer, config, self.padding + 1, translates=self.translates)

    def encode(self, example: Example, *, truncate: bool = False) -> Encoded:
        with _cutting(example):
            return self._encode(example, truncate)

    def source(self, example: Example, *, truncate: bool = False) -> Side:
        """The text of an example alone, without its translation."""
        with _cutting(example):
            return self._source(example, truncate)

    def reference(self, example: Example, *, truncate: bool = False) -> Side:
        """The translation of an example, which it must have, as a decoder learns to say it: with its end."""
        with _cutting(example):
            return self._fit(example, self._translation(example.target or ""), truncate)

    def encode_all(self, examples: Sequence[Example], *, truncate: bool = False, words: bool = False) -> list[Encoded]:
        """Many examples: what a fast tokenizer can cut together goes to it in one call, which uses its own threads.

        `words`: find their words too, from the same call.
        """
        fast = self.tokenizer.is_fast and not self.translates
        together = [e for e in examples if fast and not e.parts and e.image is None and MESSAGES not in e.extra]
        for example in together:
            refuse_half_characters(example)
        texts = [Sequences.of(example) for example in together]
        try:
            cuts = self._cut(texts, offsets=words)
        except Exception:  # one of them cannot be cut: it is named when each is tried by itself
            cuts, texts, together = [], [], []
        whole = self._whole(cuts, texts)
        if words:
            for side, found in zip(whole, word_maps(cuts, texts), strict=True):
                side.text.found = found
        sides = {id(example): self._fit(example, side, truncate) for example, side in zip(together, whole, strict=True)}
        return [
            Encoded(example, sides[id(example)]) if id(example) in sides else self.encode(example, truncate=truncate)
            for example in examples
        ]

    def _cut(self, texts: Sequence[Sequences], *, offsets: bool) -> "list[Encoding]":
        """Texts and pairs, cut together; straight from the library where transformers adds nothing.

        Without the places of the pieces in the text, which words need, it takes half the time.
        """
        if not texts:
            return []
        if not self._direct:
            return [self.tokenizer(text.text, text.pair).encodings[0] for text in texts]
        backend = self.tokenizer.backend_tokenizer
        # Set only where they differ: another thread may be cutting, and a tokenizer in use must not be changed.
        if backend.truncation is not None:
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        if backend.encode_special_tokens != self.tokenizer.split_special_tokens:
            backend.encode_special_tokens = self.tokenizer.split_special_tokens
        given = [text.text if text.pair is None else (text.text, text.pair) for text in texts]
        return backend.encode_batch(given) if offsets else backend.encode_batch_fast(given)

    @cached_property
    def _direct(self) -> bool:
        from transformers import PreTrainedTokenizerFast

        own = type(self.tokenizer)
        return all(
            getattr(own, name) is getattr(PreTrainedTokenizerFast, name) for name in ("__call__", "_encode_plus")
        )

    def _whole(self, cuts: "Sequence[Encoding]", texts: Sequence[Sequences]) -> list[Side]:
        """Texts and pairs as they were cut; their word maps are made when they are wanted."""
        stops = list(accumulate(map(len, cuts), initial=0))
        ids = np.fromiter(chain.from_iterable(cut.ids for cut in cuts), np.int64, stops[-1])
        special = np.frombuffer(b"".join(bytes(cut.special_tokens_mask) for cut in cuts), np.uint8).astype(bool)
        typed = "token_type_ids" in self.tokenizer.model_input_names
        return [
            Side(
                ids[start:stop],
                special[start:stop],
                SideWords(text, self._word_maps),
                cut.type_ids if typed else None,
                None if text.pair is None else parts_of(cut.offsets, cut.sequence_ids, (), text.text),
            )
            for cut, text, (start, stop) in zip(cuts, texts, pairwise(stops), strict=True)
        ]

    def _word_maps(self, texts: Sequence[Sequences]) -> list[WordMap]:
        """The word maps of several texts, in one call of the tokenizer."""
        return word_maps(self._cut(texts, offsets=True), texts)

    def _with_words(self, sides: Sequence[Side]) -> Sequence[Side]:
        """Make the word maps of several sides, in one call of the tokenizer."""
        waiting = [side.text for side in sides if side.text.found is None]
        for text, found in zip(waiting, self._word_maps([text.sequences for text in waiting]), strict=True):
            text.found = found
        return sides

    def _encode(self, example: Example, truncate: bool) -> Encoded:
        if example.image is not None:
            raise UserError(
                f"The text {example.id!r} has a picture, and a tokenizer reads none: leave the picture out, or "
                "give the processor of a model that takes pictures, lo.Subject(model, processor)."
            )
        example = written(example, self.tokenizer)
        source = self._source(example, truncate)
        _ = source.text.map  # now: later another thread may be cutting, and a tokenizer that translates has two modes
        if not self.translates:
            return Encoded(example, source)
        return Encoded(example, source, self._target(example, truncate))

    def _source(self, example: Example, truncate: bool) -> Side:
        return self._fit(example, self._side(Sequences.of(example), example.parts), truncate)

    def _side(self, text: Sequences, spans: tuple[Span, ...] = ()) -> Side:
        if not self.tokenizer.is_fast:
            return self._slow(text)
        # a template brings its own special tokens
        cut = self.tokenizer(text.text, text.pair, add_special_tokens=not _templated(spans))
        return self._fast(cut.encodings, text, spans)

    def _fast(self, cuts: "Sequence[Encoding]", text: Sequences, spans: tuple[Span, ...] = ()) -> Side:
        (side,), ((word, words),) = self._whole(cuts, [text]), word_maps(cuts, [text])
        if spans:
            side.parts = parts_of(cuts[0].offsets, cuts[0].sequence_ids, spans, text.text)
        if side.parts is not None and _templated(spans):
            named = zip(side.parts, side.ids.tolist(), strict=True)
            side.special = np.array(
                [part == TEMPLATE and number in self.specials for part, number in named], dtype=bool
            )
        side.text.found = np.where(side.special, -1, word), words
        return side

    def _translation(self, text: str) -> Side:
        """A text in the language of the decoder, whose pieces and special tokens may be others (`text_target`)."""
        cut = self.tokenizer(text_target=text)
        if self.tokenizer.is_fast:
            return self._fast(cut.encodings, Sequences(text))
        return self._without_offsets(cut["input_ids"], text, which="text_target")

    def _slow(self, text: Sequences) -> Side:
        first = self._slow_text(text.text, text.words)
        if text.pair is None:
            return first
        return self._joined(first, self._slow_text(text.pair, text.pair_words))

    def _slow_text(self, text: str, words: tuple[str, ...] | None) -> Side:
        return self._without_offsets(self.tokenizer(text)["input_ids"], text, words)

    def _joined(self, *pair: Side) -> Side:
        """Two texts as the tokenizer joins them, with the special tokens that it puts around and between them."""
        inner = [side.ids[~side.special].tolist() for side in pair]
        ids = self.tokenizer.build_inputs_with_special_tokens(*inner)
        word, part, start, before = [-1] * len(ids), [""] * len(ids), 0, 0
        for side, own, name in zip(pair, inner, PAIR, strict=True):
            start = next(k for k in range(start, len(ids) + 1) if ids[k : k + len(own)] == own)
            of_piece = side.word[~side.special]
            word[start : start + len(own)] = np.where(of_piece < 0, -1, of_piece + before).tolist()
            part[start : start + len(own)] = [name] * len(own)
            start, before = start + len(own), before + len(side.words)
        joined = Side.of(ids, [not name for name in part], word, (*pair[0].words, *pair[1].words))
        joined.parts = part
        if "token_type_ids" in self.tokenizer.model_input_names:
            joined.types = self.tokenizer.create_token_type_ids_from_sequences(*inner)
        return joined

    def _without_offsets(
        self, ids: list[int], text: str, words: tuple[str, ...] | None = None, which: str = "text"
    ) -> Side:
        """A text as a tokenizer without offsets cut it, with its words: given, or those between white space.

        `which` is the argument of the tokenizer (Marian cuts `text_target` with other pieces than `text`). Words that
        are not given are found when they are needed: training needs none. Only for given words that cannot be found
        does the model read the words cut one by one.
        """
        before, behind = self._added
        special = [not before <= place < len(ids) - behind for place in range(len(ids))]
        if words is None:
            found = SideWords(Sequences(text), partial(self._found_words, ids, special, which))
            return Side(np.array(ids, dtype=np.int64), np.array(special, dtype=bool), found)
        word, names = self._words_of(ids, special, words, which)
        if len(names) == len(words):
            return Side.of(ids, special, word, words)
        per_word = self._one_by_one(words, which)
        one_by_one = [i for one in per_word for i in one]
        ids = self.tokenizer.build_inputs_with_special_tokens(one_by_one)
        start = next((k for k in range(len(ids)) if ids[k : k + len(one_by_one)] == one_by_one), 0)
        word = [-1] * len(ids)
        word[start : start + len(one_by_one)] = [n for n, one in enumerate(per_word) for _ in one]
        return Side.of(ids, [number < 0 for number in word], word, words)

    def _found_words(
        self, ids: list[int], special: list[bool], which: str, texts: Sequence[Sequences]
    ) -> Sequence[WordMap]:
        """The words between white space of one text, for `SideWords`."""
        ((text, *_),) = texts
        word, names = self._words_of(ids, special, tuple(text.split()), which)
        return [(np.array(word, dtype=np.int64), WordSpans.of(names))]

    def _words_of(
        self, ids: list[int], special: list[bool], words: tuple[str, ...], which: str
    ) -> tuple[list[int], tuple[str, ...]]:
        """The word of each piece, and these words; or the words of the decoded text, if these cannot be found in it.

        A sentencepiece with the mark begins a word. If that does not give the words, they are cut one by one. If their
        ids are not those of the text (ByT5's spaces are bytes too), the words are found in the decoded text.
        """
        word, number = [], -1
        for piece, flag in zip(self.tokenizer.convert_ids_to_tokens(ids), special, strict=True):
            number += not flag and (piece.startswith("▁") or number < 0)
            word.append(-1 if flag else number)
        if number + 1 == len(words):
            return word, words
        before, behind = self._added
        inner = ids[before : len(ids) - behind]
        per_word = self._one_by_one(words, which)
        if [i for one in per_word for i in one] == inner:
            runs, names = [n for n, one in enumerate(per_word) for _ in one], words
        else:
            decoded, ends = spoken(self.tokenizer, inner)
            runs, seen = runs_of(decoded, ends), tuple(decoded.split())
            names = words if len(seen) == len(words) else seen
        return [-1] * before + runs + [-1] * behind, names

    def _one_by_one(self, words: Sequence[str], which: str) -> list[list[int]]:
        return [self.tokenizer(**{which: word}, add_special_tokens=False)["input_ids"] for word in words]

    @property
    def decoder_start(self) -> int:
        """The token that the decoder's input begins with."""
        start = getattr(self.config, "decoder_start_token_id", None)
        if start is None:
            raise UserError(
                "The model's config has no decoder_start_token_id: its decoder cannot start. T5 starts with padding: "
                "model.config.decoder_start_token_id = tokenizer.pad_token_id."
            )
        rows = getattr(self.config, "decoder_vocab_size", None) or getattr(self.config, "vocab_size", None)
        if not isinstance(start, int) or (rows is not None and not 0 <= start < rows):
            raise UserError(
                f"The model's config has decoder_start_token_id {start!r}, and its decoder has vectors for the ids 0 "
                f"to {(rows or 0) - 1}. Set it to the id that the model was trained with."
            )
        return start

    def _target(self, example: Example, truncate: bool) -> Side:
        """The decoder's input: the reference shifted right behind the start token; without one, the start alone."""
        start = self.decoder_start
        if example.target is None:
            return Side.of([start], [True], [-1], ())
        side = self._translation(example.target)
        # The last piece (the end of the sentence) is predicted, never read.
        ids, special, word = (row[:-1].tolist() for row in (side.ids, side.special, side.word))
        shifted = Side.of([start, *ids], [True, *special], [-1, *word], side.words)
        return self._fit(example, shifted, truncate)

    def _fit(self, example: Example, side: Side, truncate: bool) -> Side:
        if self.limit is None or len(side) <= self.limit:
            return side
        if not truncate:
            name = "" if example.id == "text" else f" {example.id!r}"  # a text that was typed has no name
            raise UserError(
                f"The text{name} has {len(side)} tokens and the model takes {self.limit}. Split it, or let "
                "look or serve truncate it (--truncate; the results say how many texts were cut)."
            )
        return side.at(positions_within(side.special.tolist(), self.limit))

    def collate(self, encoded: list[Encoded], step: int = 1) -> Batch:
        """Pad to the longest, or the next multiple of `step` that the model takes, and build the masks."""
        source = self._tokens([e.source for e in encoded], step=step)
        inputs = {"input_ids": source.ids, "attention_mask": source.mask.long()}
        if encoded[0].source.types is not None:
            types = [e.source.types or [] for e in encoded]
            inputs["token_type_ids"] = _padded_bytes(types, source.ids.shape[1]).long()
        target = None
        if self.translates:
            target = self._tokens([e.target for e in encoded if e.target is not None], "decoder_vocab_size", step)
            inputs["decoder_input_ids"] = target.ids
            inputs["decoder_attention_mask"] = target.mask.long()
            target = _without(target, torch.tensor([e.example.target is None for e in encoded]))
        return Batch(inputs, source, target, tuple(e.example for e in encoded))

    def refuse_unknown(self, ids: Iterable[int], side: str = "vocab_size") -> None:
        """A token that was added to the tokenizer only: the model has no vector for it."""
        rows = getattr(self.config, side, None) or getattr(self.config, "vocab_size", None)
        largest = max(ids, default=0)
        if rows is not None and largest >= rows:
            token = self.tokenizer.convert_ids_to_tokens(largest)
            raise UserError(
                f"The tokenizer gives {token!r} the id {largest}, and the model has vectors for {rows} ids. Use the "
                "tokenizer that came with the model, or make its table larger (resize_token_embeddings)."
            )

    def width(self, tokens: int, step: int) -> int:
        """The next multiple of `step`, at most the model's maximum length."""
        return max(tokens, min(-(-tokens // step) * step, self.limit or tokens + step))

    def _tokens(self, sides: list[Side], rows: str = "vocab_size", step: int = 1) -> Tokens:
        width = self.width(max(map(len, sides), default=0), step)
        ids = _padded([side.ids for side in sides], self.padding, width)
        self.refuse_unknown([int(ids.max())] if ids.numel() else [], rows)
        lengths = torch.tensor([len(side) for side in sides])
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        special = _padded([side.special for side in sides], False, width)
        kinds = self.kinds.of(ids, mask, special) | part_masks([side.parts for side in sides], ids.shape[1])
        text = TokenTexts(
            word=lambda: _padded([side.word for side in self._with_words(sides)], -1, width),
            pieces=lambda: tuple(tuple(map(self._piece, side.ids.tolist())) for side in sides),
            words=lambda: tuple(side.words for side in self._with_words(sides)),
            spans=lambda: tuple(side.word_spans for side in self._with_words(sides)),
        )
        return Tokens(ids, mask, special, kinds, text)

    def _piece(self, number: int) -> str:
        """A piece as text, cached."""
        if number not in self._known_pieces:
            self._known_pieces[number] = self.tokenizer.convert_ids_to_tokens(number)
        return self._known_pieces[number]

    @cached_property
    def _known_pieces(self) -> dict[int, str]:
        return {}

    @cached_property
    def specials(self) -> set[int]:
        """The ids that may open or close a text."""
        words = {self.tokenizer.unk_token_id}
        return {i for i in self.tokenizer.all_special_ids if i not in words}

    @cached_property
    def _added(self) -> tuple[int, int]:
        """How many special tokens the tokenizer puts before a text, and how many behind it."""
        inner = [self.tokenizer.unk_token_id]
        made = self.tokenizer.build_inputs_with_special_tokens(inner)
        before = made.index(inner[0])
        return before, len(made) - before - 1


def _templated(spans: tuple[Span, ...]) -> bool:
    """Whether a chat template wrote a part of the text."""
    return any(span.name == TEMPLATE for span in spans)


@contextmanager
def _cutting(example: Example) -> Iterator[None]:
    """Refuse text that is none; what the tokenizer raises on other text becomes one line."""
    refuse_half_characters(example)
    with outside(f"The text {example.id!r} cannot be cut into tokens", "Correct it, or leave it out."):
        yield


def refuse_half_characters(example: Example) -> None:
    """A lone surrogate is no character: no UTF-8 file can hold it, and no tokenizer takes it."""
    for text in (example.text, example.pair, example.target, *(example.words or ())):
        try:
            if text is not None and not text.isascii():
                text.encode()
        except UnicodeEncodeError as error:
            half = f"U+{ord(error.object[error.start]):04X}"
            raise UserError(
                f"The text {example.id!r} holds half a character ({half}, as bytes that are not UTF-8 become): it is "
                "no text. Save it as UTF-8."
            ) from error


def _without(tokens: Tokens, absent: Tensor) -> Tokens:
    """Texts without a translation: the model must be given a start token, but nothing of it may count."""
    if not bool(absent.any()):
        return tokens
    present = ~absent[:, None]
    categories = {name: flags & present for name, flags in tokens.categories.items()}
    return tokens.replaced(mask=tokens.mask & present, special=tokens.special & present, categories=categories)


def _padded(rows: Sequence[Row], value: int, width: int) -> Shaped[Tensor, "row place"]:
    out = np.full((len(rows), width), value, dtype=bool if isinstance(value, bool) else np.int64)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return torch.from_numpy(out)


def _padded_bytes(rows: Sequence[Sequence[int]], width: int) -> UInt8[Tensor, "row place"]:
    """Lists of numbers below 256 as a padded array."""
    out = np.zeros((len(rows), width), dtype=np.uint8)
    for place, row in enumerate(rows):
        out[place, : len(row)] = np.frombuffer(bytes(row), dtype=np.uint8)
    return torch.from_numpy(out)
