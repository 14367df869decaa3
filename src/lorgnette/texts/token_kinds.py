"""Kinds of token: what opens and closes texts, punctuation, and the rest; read off a tokenizer's vocabulary."""

import string
import unicodedata
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lorgnette.texts.padding import is_first, is_last
from lorgnette.texts.readable import from_bytes
from lorgnette.types import PretrainedConfig, PreTrainedTokenizerBase

CATEGORIES = ("cls", "sep", "punctuation", "period_comma", "other", "first", "last")
"""Kinds of token that can be read. cls, sep, period_comma and other share out all tokens (Clark et al. 2019, §3.2):
cls is what opens a text ([CLS], <s>, a decoder's start), sep what closes or separates ([SEP], </s>). Both are tokens
that the tokenizer adds: one that is typed in a text is a word."""

_MARKS = "▁Ġ"


class TokenKinds:
    """Which pieces of a vocabulary are of which kind."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, at_least: int, *, translates: bool
    ) -> None:
        self.tokenizer, self.config, self.translates = tokenizer, config, translates
        self.at_least = at_least  # pieces, since a model may pad with an id that its tokenizer does not have

    def of(
        self, ids: Int[Tensor, "text token"], mask: Bool[Tensor, "text token"], special: Bool[Tensor, "text token"]
    ) -> dict[str, Bool[Tensor, "text token"]]:
        """For every kind, which tokens of a padded batch are of it."""
        opens = special & self._opening[ids]
        closes = special & ~opens
        period_comma = self._period_comma[ids] & mask & ~special
        return {
            "cls": opens,
            "sep": closes,
            "punctuation": self._punctuation[ids] & mask & ~special,
            "period_comma": period_comma,
            "other": mask & ~special & ~period_comma,
            "first": is_first(mask),
            "last": is_last(mask),
        }

    @cached_property
    def _size(self) -> int:
        return max(len(self.tokenizer), int(getattr(self.config, "vocab_size", 0) or 0), self.at_least)

    @cached_property
    def _opening(self) -> Tensor:
        table = torch.zeros(self._size, dtype=torch.bool)
        start = getattr(self.config, "decoder_start_token_id", None) if self.translates else None
        for token in (self.tokenizer.cls_token_id, self.tokenizer.bos_token_id, start):
            # A token that also closes texts (GPT-2's <|endoftext|>) opens only where there is no other kind.
            if token is not None and (token != self.tokenizer.eos_token_id or self.tokenizer.sep_token_id is not None):
                table[token] = True
        return table

    @cached_property
    def _texts(self) -> list[str]:
        pieces = [piece or "" for piece in self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))]
        # GPT-2, RoBERTa and ModernBERT write each byte of a piece as a character of its own.
        if self.tokenizer.is_fast and "ByteLevel" in repr(self.tokenizer.backend_tokenizer.decoder):
            return [from_bytes(piece).strip() for piece in pieces]
        return [piece.removeprefix("##").lstrip(_MARKS) for piece in pieces]

    @cached_property
    def _punctuation(self) -> Tensor:
        return self._table([bool(text) and all(map(_is_punctuation, text)) for text in self._texts])

    @cached_property
    def _period_comma(self) -> Tensor:
        return self._table([text in (".", ",") for text in self._texts])

    def _table(self, flags: list[bool]) -> Tensor:
        table = torch.zeros(self._size, dtype=torch.bool)
        table[: len(flags)] = torch.tensor(flags)
        return table


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
