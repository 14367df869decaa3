"""Running text cut into segments of at most 128 tokens, as Clark et al. 2019 and Kobayashi et al. 2020 used it.

Whole sentences of one document, in order, fill a segment; a pair is its two consecutive halves: `[CLS] p1 [SEP] p2
[SEP]`. Nothing is drawn at random, so the same corpus and tokenizer give the same segments.
"""

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any

from lorgnette.errors import UserError
from lorgnette.texts import corpus as open_corpus
from lorgnette.texts.example import Example

TOKENS = 128
COUNT = 992
"""Segments in the file that Clark et al. released."""
FULL = 0.75
"""The least part of a segment that must be filled: ends of documents are left out."""

SOURCES = {"ud_en_gum": ("train", "dev", "test"), "wikitext2": ("valid", "test")}

Document = tuple[str, list[str]]


@cache  # a treebank takes half a minute to read, and every condition needs it
def documents(name: str, data: str | None = None) -> tuple[Document, ...]:
    """The documents of a corpus in order, each as its sentences in raw text."""
    return tuple(_documents(name, data))


def _documents(name: str, data: str | None) -> Iterator[Document]:
    if name not in SOURCES:
        raise UserError(f"Segments are made from {' or '.join(SOURCES)}. Got {name!r} instead.")
    for split in SOURCES[name]:
        examples = open_corpus(name, split=split, data=data)
        for title, texts in groupby(examples, key=lambda example: str(example.extra.get("document", ""))):
            if name == "wikitext2":
                yield f"{split} {title}", [s for text in texts for s in wikitext_sentences(text.text)]
            else:
                yield title, [example.text for example in texts]


def wikitext_sentences(paragraph: str) -> list[str]:
    """The sentences of a WikiText paragraph as they were written; those that hold an unknown word are left out.

    Nearly every paragraph has an `<unk>`, which is one frequent token where the text had many rare ones.
    """
    ends = re.split(r"(?<= [.!?])\s+", paragraph.strip())
    return [detokenised(sentence) for sentence in ends if sentence and "<unk>" not in sentence]


def detokenised(text: str) -> str:
    """Words put together again: `1 @,@ 000`, `well @-@ known`, no blanks before marks or inside quotes."""
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(r'" ([^"]*) "', r'"\1"', text)
    text = re.sub(r" (n't|'s|'re|'ve|'ll|'d|'m)\b", r"\1", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    return re.sub(r" ([,.;:!?)\]])", r"\1", text).strip()


def segments(
    texts: Iterable[Document], tokenizer: Any, *, pairs: bool = True, tokens: int = TOKENS, count: int = COUNT
) -> list[Example]:
    """`count` segments, evenly spread over all that the documents give."""
    room = tokens - tokenizer.num_special_tokens_to_add(pairs)
    found = [segment for document in texts for segment in _of(document, tokenizer, room, pairs)]
    if len(found) < count:
        raise UserError(f"The text gives {len(found)} segments of {tokens} tokens; {count} are needed. Ask for fewer.")
    return [found[number * len(found) // count] for number in range(count)]


def _of(document: Document, tokenizer: Any, room: int, pairs: bool) -> Iterator[Example]:
    title, sentences = document
    if not sentences:
        return
    encoded = tokenizer(sentences, add_special_tokens=False)["input_ids"]
    lengths = [len(ids) for ids in encoded]
    for number, (start, stop) in enumerate(packed(lengths, room), 1):
        if sum(lengths[start:stop]) < FULL * room or (pairs and stop - start < 2):
            continue
        middle = start + half(lengths[start:stop]) if pairs else stop
        first, second = " ".join(sentences[start:middle]), " ".join(sentences[middle:stop])
        yield Example(f"{title} {number}", first, pair=second if pairs else None, extra={"document": title})


def packed(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Spans of consecutive sentences that fit; a sentence that is too long by itself ends a span and is in none."""
    start, used = 0, 0
    for at, length in enumerate(lengths):
        if used + length > room:
            if at > start:
                yield start, at
            start, used = at, 0
        if length > room:
            start = at + 1
        else:
            used += length
    if start < len(lengths):
        yield start, len(lengths)


def half(lengths: Sequence[int]) -> int:
    """How many sentences make the first half: the split nearest to the middle, the earlier of two as near."""
    total = sum(lengths)
    return min(range(1, len(lengths)), key=lambda k: (abs(total - 2 * sum(lengths[:k])), k))


def shuffled_words(examples: Iterable[Example], seed: int) -> list[Example]:
    """The same paragraphs with their words (what stands between blanks) in an order drawn from the seed and the id."""
    return [
        replace(
            example,
            text=_shuffled(example.text, f"{seed} {example.id} 1"),
            pair=None if example.pair is None else _shuffled(example.pair, f"{seed} {example.id} 2"),
        )
        for example in examples
    ]


def _shuffled(text: str, key: str) -> str:
    words = text.split()
    random.Random(hashlib.sha256(key.encode()).digest()).shuffle(words)
    return " ".join(words)
