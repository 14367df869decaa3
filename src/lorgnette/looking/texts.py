"""A corpus as one subject's tokens: read and tokenised once for all who want it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lorgnette.errors import UserError, shown
from lorgnette.lens.losses import classifies
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.texts import refuse_no_text, texts_of
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.labels import matched
from lorgnette.texts.sides import Encoded

HELD = 4096
"""Texts that stay in memory; a larger corpus streams, and what lies beyond is tokenised again when it is read again."""
WINDOW = 4096
"""Texts that are sorted by length together, at most; memory holds one window, not the corpus."""
FIRST = {"cpu": 256, "cuda": 64}
"""Texts of the first window. On a GPU windows grow slowly, so that it soon has something to do, and does not run out of
it while the texts of the next window are cut into tokens."""

TOGETHER = 64
"""Texts that are handed to the tokenizer in one call."""

Texts = Corpus | Iterable[object] | Mapping[str, object] | str
"""Whatever `lo.corpus` takes: a corpus, a name, a data set, a table, texts."""


@dataclass(frozen=True)
class Share:
    """The texts of one shard: number `number` of the corpus, counted from 1, and every `of`-th after it.

    So no process needs to know how many texts there are, and none tokenises those of the others.
    """

    number: int = 1
    of: int = 1

    @staticmethod
    def given(shard: object) -> "Share":
        """From (3, 64): the third of 64 shards."""
        pair = tuple(shard) if isinstance(shard, tuple | list) else ()
        if len(pair) != 2 or not all(isinstance(one, int) and not isinstance(one, bool) for one in pair):
            raise UserError(f"shard must be two whole numbers, such as (3, 64). Got {shown(shard)} instead.")
        number, of = pair
        if not 1 <= number <= of:
            raise UserError(f"There is no shard {number} of {of}: shards count from 1 to the number of shards.")
        return Share(number, of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, texts: int) -> int:
        """How many of so many texts belong to it."""
        return len(range(self.number - 1, texts, self.of))


class TokenizedTexts:
    """The texts of a corpus, or a share of them, tokenised for a subject. Iterating keeps the order of the corpus."""

    subject: Subject
    truncate: bool
    keep: int

    def __init__(
        self, subject: Subject, corpus: Texts, *, truncate: bool = False, keep: int = HELD, share: Share | None = None
    ) -> None:
        refuse_no_subject(subject, "look")
        self.subject, self.corpus, self.truncate, self.keep = subject, texts_of(corpus), truncate, keep
        self.share: Share | None = share
        self.words: bool = False
        """Whether somebody will want to know their words: found as they are cut into tokens."""
        self._first: list[Encoded] = []
        self._whole = False
        self._read, self._read_through = hashlib.sha256(), False
        self.classes: int | None = None
        """How many classes labels may name; None as long as nobody reads them."""

    def match_labels(self, renamed: Mapping[str, str] | None = None) -> None:
        """Labels by name: from here on they count in the subject's classes; what does not match is a `UserError`."""
        self._match(renamed)
        self.classes = len(self.subject.labels or ()) if classifies(self.subject) else None

    def _match(self, renamed: Mapping[str, str] | None) -> None:
        if self.subject.labels is None:
            if renamed:
                raise UserError(f"{self.subject.name!r} has no classes to map labels to.")
            return
        if not isinstance(self.corpus, Corpus):
            if renamed:
                raise UserError("Labels are mapped by name, but a list of texts has no label names. Pass a Corpus.")
            return
        named = matched(self.corpus, self.subject.labels, renamed, model=self.subject.name)
        if named is not self.corpus:
            self.corpus, self._first, self._whole = named, [], False

    @property
    def once(self) -> bool:
        """Whether the corpus can be read only once (an iterator)."""
        return iter(self.corpus) is self.corpus

    @property
    def fingerprint(self) -> str | None:
        """What the texts are known by; None if they can be read only once, unless a shard has read them."""
        return self._read.hexdigest()[:16] if self._read_through else fingerprint_of(self.corpus)

    def __iter__(self) -> Iterator[Encoded]:
        for encoded in self._encoded():
            label = encoded.example.label
            if self.classes is not None and label is not None and label >= self.classes:
                raise UserError(
                    f"The text {encoded.example.id!r} has label {label}, but {self.subject.name!r} has {self.classes} "
                    f"classes (0 to {self.classes - 1}). Give the corpus that the classifier was trained for."
                )
            yield encoded

    def _encoded(self) -> Iterator[Encoded]:
        if self._whole:
            yield from self._first
            return
        share = self.share or Share()
        items, count = islice(enumerate(self._items(), 1), share.number - 1, None, share.of), 0
        for encoded in self._first:
            next(items, None)
            count += 1
            yield encoded
        while some := list(islice(items, TOGETHER)):
            examples = [_example(item, number) for number, item in some]
            for encoded in self.subject.encoder.encode_all(examples, truncate=self.truncate, words=self.words):
                if len(self._first) == count < self.keep:
                    self._first.append(encoded)
                count += 1
                yield encoded
        self._whole = count == len(self._first)

    def _items(self) -> Iterator[Example | str]:
        """What the corpus has. Shards of what can be read only once are known by what each of them has read of it."""
        hashing = self.share is not None and self.once
        for number, item in enumerate(self.corpus):
            if hashing:
                self._read.update(("\n" * bool(number) + repr(item)).encode())
            yield item
        self._read_through = hashing


def _example(item: Example | str, number: int) -> Example:
    refuse_no_text(item, number)
    return item if isinstance(item, Example) else Example(f"text {number}", item)


def fingerprint_of(corpus: Texts) -> str | None:
    """Of a Corpus, a list or a tuple; an iterator cannot be read twice."""
    if isinstance(corpus, Corpus):
        return corpus.fingerprint()
    if isinstance(corpus, list | tuple):
        return hashlib.sha256("\n".join(map(repr, corpus)).encode()).hexdigest()[:16]
    return None


@dataclass
class Counts:
    """What went through: texts, tokens, batches; texts cut by the user's wish, without a token, without translation."""

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    empty: int = 0
    untranslated: int = 0
    batches: int = 0

    def add(self, batch: Sequence[Encoded]) -> None:
        self.texts += len(batch)
        self.tokens += sum(text.tokens for text in batch)
        self.truncated += sum(text.cut for text in batch)
        self.untranslated += sum(text.target is not None and text.example.target is None for text in batch)

    def notes(self) -> list[str]:
        """What a reader should know of the texts."""
        empty = [f"{self.empty} texts without tokens were skipped"]
        alone = [f"{self.untranslated} texts have no translation and are missing from decoder and cross-attention"]
        return [*(empty if self.empty else []), *(alone if self.untranslated else [])]


class UniqueIds:
    """Refuses two texts of one id, by which their numbers are told apart."""

    def __init__(self, *, enabled: bool) -> None:
        self.ids: set[str] | None = set() if enabled else None

    def add(self, batch: Sequence[Encoded]) -> None:
        for text in batch if self.ids is not None else ():
            assert self.ids is not None
            if text.example.id in self.ids:
                raise UserError(
                    f"Two texts have the id {text.example.id!r}, and by their ids the numbers of texts are kept apart. "
                    "Give each an id of its own, or leave out --keep texts."
                )
            self.ids.add(text.example.id)


def batches(
    texts: Iterable[Encoded], batch_tokens: int, counts: Counts, device: str = "cpu", step: int = 1
) -> Iterator[list[Encoded]]:
    """Texts in batches of similar length, in an order that depends on corpus and device; empty ones are counted.

    Lengths count in multiples of `step`, so that batches of one length have one number of texts.
    """
    first = min(FIRST.get(device, FIRST["cpu"]), WINDOW)
    stream, size, seen = iter(texts), first, 0
    waiting: list[Encoded] = []
    while (window := list(islice(stream, size))) or waiting:
        seen, more = seen + len(window), len(window) == size
        size = min(2 * size if device == "cpu" else max(first, seen // 4), WINDOW)
        full = [text for text in window if len(text.source) > 0]
        counts.empty += len(window) - len(full)
        full = sorted([*waiting, *full], key=lambda text: (len(text.source), len(text.target or ())), reverse=True)
        start = 0
        while start < len(full):
            # Sorted by length: the first is the longest, and all are padded to it.
            stop = start + max(1, batch_tokens // _padded_tokens(full[start], step))
            if stop > len(full) and more:
                break  # the next window fills it up
            yield full[start:stop]
            start = stop
        waiting = full[start:]


def _padded_tokens(text: Encoded, step: int) -> int:
    """Its tokens, those of each side as a multiple of `step`."""
    return sum(-(-len(side) // step) * step for side in (text.source, text.target) if side is not None)
