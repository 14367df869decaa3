"""Tiny random models with a tokenizer that goes with them, and texts in its words."""

import random
from typing import Any

import torch
from families import tiny
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lorgnette.subject import Subject
from lorgnette.texts.example import Example

SPECIAL = ("[PAD]", "</s>", "[CLS]", "[SEP]", "[MASK]")
WORDS = (".", ",", *(f"w{number}" for number in range(7, 97)))
TRANSLATES = ("marian", "t5")
BARE = ("gpt2",)  # no opening or closing token


def tokenizer(family: str = "bert") -> PreTrainedTokenizerFast:
    """A word per piece, 97 in all; what opens and closes a text depends on the family."""
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[MASK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]"}
    if family in TRANSLATES:
        single, pair, specials = "$A </s>", "$A </s> $B </s>", [("</s>", 1)]
        names |= {"eos_token": "</s>"}
    elif family in BARE:
        single, pair, specials = "$A", "$A $B", []
    else:
        single, pair, specials = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", [("[CLS]", 2), ("[SEP]", 3)]
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    inner.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, **names)


def subject(family: str = "bert", seed: int = 0, dtype: torch.dtype = torch.float64) -> Subject:
    return Subject(tiny(family, seed, dtype), tokenizer(family), name=f"tiny {family}")


def examples(lengths: tuple[int, ...] = (9, 4, 1, 6, 12), seed: int = 0, **fields: Any) -> list[Example]:
    """Texts of random words, some of them "." and ",", each with a target and a label."""
    rng = random.Random(seed)
    text = lambda length: " ".join(rng.choice(WORDS[: 2 + rng.choice((0, 88))]) for _ in range(length))  # noqa: E731
    return [
        Example(f"{number + 1}", text(length), target=text(max(1, length - 1)), label=number % 3, **fields)
        for number, length in enumerate(lengths)
    ]
