"""A corpus as one subject's tokens: read and tokenised once for all who want it."""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import chain, cycle, islice, repeat
from math import gcd, lcm
from operator import itemgetter

from lorgnette.errors import UserError, shown
from lorgnette.lens.losses import classifies
from lorgnette.looking.text_set import TextSet
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.texts import refuse_no_text, texts_of
from lorgnette.texts.corpus import NAMED, Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.labels import matched
from lorgnette.texts.sides import Encoded

HELD = 4096
"""At most so many texts stay in memory. A larger corpus streams; its other texts are tokenised at each reading."""
WINDOW = 4096
"""At most so many texts are sorted by length together: memory holds one window, not the corpus."""
FIRST = {"cpu": 256, "cuda": 64}
"""Texts of the first window. On a GPU windows grow slowly, so that it soon has something to do, and does not run out of
it while the texts of the next window are cut into tokens."""

_FIRST_PARTS = 4
"""How many parts of a corpus are opened to choose a few of its texts."""

TOGETHER = 64
"""How many texts the tokenizer gets in one call."""

Texts = Corpus | Iterable[object] | Mapping[str, object] | str
"""Whatever `lo.corpus` takes: a corpus, a name, a data set, a table, texts."""


@dataclass(frozen=True)
class Share:
    """The texts of a shard or of a process: number `number` of the corpus, counted from 1, and every `of`-th after it.

    So nobody needs to know how many texts there are, and nobody tokenises those of the others. A corpus in several
    parts, files or shards of a data set, counts the first text of each part, then the second of each, and so on:
    whoever wants every 64th of 64 parts reads one part, and whoever wants every 64th of 96 reads three, and half of
    what is in them.
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

    def numbers(self, texts: int) -> range:
        """The numbers of the texts in this share of a corpus of this size."""
        return range(self.number, texts + 1, self.of)

    def within(self, place: int, parts: int) -> "Share | None":
        """Its texts of the part at this place, counted in that part; None if it has none of them.

        The text at `row` (from 0) of the part is number 1 + place + row · parts of the corpus.
        """
        common = gcd(parts, self.of)
        ahead, of = self.number - 1 - place, self.of // common
        if ahead % common:
            return None
        return Share(ahead // common * pow(parts // common, -1, of) % of + 1, of)

    def turns(self) -> Iterator[bool]:
        """For each text of the corpus, whether it belongs to this share; an endless iterator."""
        return chain(repeat(False, self.number - 1), cycle(chain([True], repeat(False, self.of - 1))))

    def split(self, number: int, of: int) -> "Share":
        """The part of this share that one of several processes analyses."""
        return Share(self.number + self.of * (number - 1), self.of * of)


ALL_TEXTS = Share()


class TokenizedTexts:
    """The texts of a corpus, or a share of them, tokenised for a subject. Iterating keeps the order of the corpus."""

    def __init__(
        self, subject: Subject, corpus: Texts, *, truncate: bool = False, keep: int = HELD, share: Share | None = None
    ) -> None:
        refuse_no_subject(subject, "look")
        self.subject, self.corpus, self.truncate, self.keep = subject, texts_of(corpus), truncate, keep
        self.share: Share | None = share
        self.words: bool = False
        """Whether a lens needs words, which are then found while the texts are tokenised."""
        self.own: int | None = None
        """The number of texts in the share, or in the part last requested; known after a reading to the end."""
        self.size: int | None = None
        """The number of texts read so far, those of other shares included; None if the corpus has parts."""
        self._held: dict[int, Encoded] = {}
        self._complete: Share | None = None  # all of it is held
        self._read = hashlib.sha256()
        self.classes: int | None = None
        """The number of classes of the subject; None while no lens uses labels."""

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
            self.corpus, self._held, self._complete, self.own = named, {}, None, None

    @property
    def parts(self) -> Sequence[Corpus | Iterable[Example | str]]:
        """The parts that the corpus is read from, one at a time; the corpus itself if it has none."""
        return self.corpus.parts if isinstance(self.corpus, Corpus) else (self.corpus,)

    @property
    def known_in_parts(self) -> bool:
        """Whether a shard reads some parts of the corpus only, so that it cannot know the others."""
        return self.share is not None and len(self.parts) > 1

    @property
    def once(self) -> bool:
        """Whether the corpus can be read only once (an iterator)."""
        return iter(self.corpus) is self.corpus

    @property
    def fingerprint(self) -> str | None:
        """What the texts are known by; None if they can be read only once, unless a shard has read them.

        Of a shard of a corpus in parts: what the parts that it reads are known by, and which there are.
        """
        if self.known_in_parts:
            return short_hash([self.listing, *self.part_fingerprints().items()])
        read = self.share is not None and self.once and self.own is not None
        return self._read.hexdigest()[:16] if read else fingerprint_of(self.corpus)

    @property
    def listing(self) -> str | None:
        """What identifies the corpus in every shard: its fingerprint, or the names of its parts."""
        if not self.known_in_parts:
            return self.fingerprint
        assert isinstance(self.corpus, Corpus)
        names = (part.name for part in self.corpus.parts)
        return short_hash([self.corpus.name, self.corpus.split, self.corpus.mark(), *names])

    def part_fingerprints(self) -> dict[int, str]:
        """The fingerprints of the parts of the corpus that a shard reads, by their place; none if it has no parts."""
        if not self.known_in_parts:
            return {}
        assert self.share is not None
        assert isinstance(self.corpus, Corpus)
        parts = self.corpus.parts
        return {n: part.fingerprint() for n, part in enumerate(parts) if self.share.within(n, len(parts))}

    def expected(self, part: Share = ALL_TEXTS) -> int | None:
        """How many texts there are to read, or can be at most, where that is known without reading them."""
        share = (self.share or ALL_TEXTS).split(part.number, part.of)
        within = [(rows, one) for rows, one in self._within(share) if rows is not None]
        counts = [None if (size := text_count(one)) is None else len(rows.numbers(size)) for rows, one in within]
        return None if None in counts else sum(count for count in counts if count is not None)

    def distance(self, part: Share = ALL_TEXTS) -> int:
        """The difference between the numbers of two successive texts in a part of the corpus."""
        return lcm(len(self.parts), (self.share or ALL_TEXTS).split(part.number, part.of).of)

    def _within(self, share: Share) -> Iterator[tuple[Share | None, Corpus | Iterable[Example | str]]]:
        """Each part of the corpus, with the share of it."""
        return ((share.within(place, len(self.parts)), part) for place, part in enumerate(self.parts))

    def __iter__(self) -> Iterator[Encoded]:
        return (encoded for encoded in self.left() if encoded is not None)

    def skipped(self, part: Share = ALL_TEXTS) -> "Counts":
        """The items that are no texts, once they were read; whoever has the first text of a part counts its items."""
        found = Counts()
        for place, (within, one) in enumerate(self._within((self.share or ALL_TEXTS).split(part.number, part.of))):
            if within is not None and within.number == 1 and isinstance(one, Corpus):
                found.skipped += one.skipped.count
                found.first_skipped += [(place, id) for id in one.skipped.first]
        return found

    def left(self, done: Container[int] = (), part: Share = ALL_TEXTS) -> Iterator[Encoded | None]:
        """What one of several processes has left to do: its part of the texts, None for each whose number is done.

        Nothing else is tokenised.
        """
        for encoded in self._encoded(done, (self.share or ALL_TEXTS).split(part.number, part.of)):
            label = None if encoded is None else encoded.example.label
            if encoded is not None and self.classes is not None and label is not None and label >= self.classes:
                raise UserError(
                    f"The text {encoded.example.id!r} has label {label}, but {self.subject.name!r} has {self.classes} "
                    f"classes (0 to {self.classes - 1}). Give the corpus that the classifier was trained for."
                )
            yield encoded

    def first(self, count: int) -> Iterator[Example]:
        """Those texts of the share that are among the first `count` of the corpus, or of its first parts.

        Nothing is tokenised.
        """
        share, parts = self.share or ALL_TEXTS, min(_FIRST_PARTS, len(self.parts))
        if share == self._complete:
            places = ((divmod(number - 1, len(self.parts)), text.example) for number, text in self._in_order())
            yield from (example for (row, place), example in places if place < parts and row < count // parts)
            return
        for number, item in self._own(share, parts, count // parts):
            held = self._held.get(number)
            yield _example(item, number) if held is None else held.example

    def encoded(self, example: Example) -> Encoded:
        """One of `examples` as token ids, tokenised at most once."""
        held = next((text for text in self._held.values() if text.example is example), None)
        return self.subject.encoder.encode_all([example], truncate=self.truncate)[0] if held is None else held

    def _in_order(self) -> list[tuple[int, Encoded]]:
        """The texts in memory, part by part."""
        parts = len(self.parts)
        return sorted(self._held.items(), key=lambda item: ((item[0] - 1) % parts, item[0]))

    def _encoded(self, done: Container[int], share: Share) -> Iterator[Encoded | None]:
        if share == self._complete:
            yield from (None if number in done else text for number, text in self._in_order())
            return
        items, own, held = self._own(share), 0, 0
        while some := list(islice(items, TOGETHER)):
            known = {number for number, _ in some if number in done or number in self._held}
            new = [_example(item, number) for number, item in some if number not in known]
            fresh = iter(self.subject.encoder.encode_all(new, truncate=self.truncate, words=self.words) if new else ())
            for number, _ in some:
                own += 1
                if number in done:
                    held += number in self._held
                    yield None
                    continue
                encoded = self._held[number] if number in known else replace(next(fresh), number=number)
                if len(self._held) < self.keep:
                    self._held[number] = encoded
                held += number in self._held
                yield encoded
        self.own = own
        if held == own == len(self._held):
            self._complete = share

    def _own(
        self, share: Share, parts: int | None = None, rows: int | None = None
    ) -> Iterator[tuple[int, Example | str | None]]:
        """The texts of a share, or those in the first parts, or rows of each, with their numbers in the corpus.

        Parts that it has nothing of are not opened. Shards of what can be read only once are known by what each of them
        has read of it, so it is hashed.
        """
        hashing, many, row = self.share is not None and self.once, len(self.parts), -1
        for place, (within, part) in enumerate(islice(self._within(share), parts)):
            if within is None:
                continue
            texts: Iterable[Example | str | None] = part.some(within.turns()) if isinstance(part, Corpus) else part
            for row, (item, turn) in enumerate(zip(islice(texts, rows), within.turns(), strict=False)):
                if hashing:
                    self._read.update(("\n" * (row > 0) + repr(item)).encode())
                if turn:
                    yield 1 + place + row * many, item
        self.size = row + 1 if many == 1 and rows is None else self.size


def _example(item: Example | str | None, number: int) -> Example:
    refuse_no_text(item, number)
    assert item is not None
    return item if isinstance(item, Example) else Example(f"text {number}", item)


def fingerprint_of(corpus: Texts) -> str | None:
    """The fingerprint of a Corpus, a list or a tuple; an iterator cannot be read twice."""
    if isinstance(corpus, Corpus):
        return corpus.fingerprint()
    if isinstance(corpus, list | tuple):
        return hashlib.sha256("\n".join(map(repr, corpus)).encode()).hexdigest()[:16]
    return None


def text_count(corpus: object) -> int | None:
    """How many texts there are, or can be at most, where that is known without reading them."""
    return len(corpus) if isinstance(corpus, Sized) else getattr(corpus, "most", None)


FEW = 50
"""Texts below which the mean of skewed values is far from normal (docs/tests.md)."""


def short_hash(about: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


@dataclass
class Counts:
    """Counts of texts, tokens and batches, and of texts that were truncated, had no token, or had no translation."""

    texts: int = 0
    tokens: int = 0
    truncated: int = 0
    empty: int = 0
    untranslated: int = 0
    batches: int = 0
    skipped: int = 0
    """Items of the corpus that are no texts, once the pass is over."""
    first_skipped: list[tuple[int, str]] = field(default_factory=list)
    """The first of them: the place of the part in the corpus, and the id."""

    def add(self, batch: Sequence[Encoded]) -> None:
        """Count the texts of a batch, or texts without a token."""
        full = [text for text in batch if len(text.source) > 0]
        self.texts += len(full)
        self.tokens += sum(text.tokens for text in full)
        self.truncated += sum(text.cut for text in full)
        self.empty += len(batch) - len(full)
        self.untranslated += sum(text.target is not None and text.example.target is None for text in full)
        self.batches += bool(full)

    @staticmethod
    def total(several: "Iterable[Counts]") -> "Counts":
        """The counts of several processes, shards or runs together."""
        counts = list(several)
        sums = {name: sum(getattr(one, name) for one in counts) for name in _NUMBERS}
        named = chain.from_iterable(one.first_skipped for one in counts)
        return Counts(**sums, first_skipped=sorted(named, key=itemgetter(0))[:NAMED])

    def notes(self) -> list[str]:
        """Notes about the texts that a reader of the results should know."""
        empty = [f"{self.empty} texts without tokens were skipped"]
        alone = [f"{self.untranslated} texts have no translation and are missing from decoder and cross-attention"]
        names = ", ".join(id for _, id in self.first_skipped)
        left_out = [f"{self.skipped} items of the corpus were skipped: {names}"]
        few = [f"Fewer than {FEW} texts ({self.texts}): t intervals and tests of uneven values are too sure"]
        said = (
            (empty, self.empty), (alone, self.untranslated), (left_out, self.skipped), (few, 1 < self.texts < FEW),
        )  # fmt: skip
        return [note for notes, true in said for note in notes if true]


_NUMBERS = [each.name for each in fields(Counts) if each.name != "first_skipped"]


@dataclass
class Analysed:
    """Which texts the states of the lenses hold, and their counts."""

    numbers: TextSet = field(default_factory=TextSet)
    counts: Counts = field(default_factory=Counts)

    def add(self, batch: Sequence[Encoded]) -> None:
        self.numbers.add([text.number for text in batch])
        self.counts.add(batch)


class UniqueIds:
    """Refuses two texts of one id, by which their numbers are told apart."""

    def __init__(self, known: Iterable[str] | None) -> None:
        """`known`: the ids of texts that were analysed before; None: nobody needs unique ids."""
        self.ids: set[str] | None = None if known is None else set(known)

    def add(self, batch: Sequence[Encoded]) -> None:
        for text in batch if self.ids is not None else ():
            assert self.ids is not None
            if text.example.id in self.ids:
                raise same_id(text.example.id)
            self.ids.add(text.example.id)


def same_id(name: str) -> UserError:
    return UserError(
        f"Two texts have the id {name!r}, and by their ids the numbers of texts are kept apart. Give each an id of its "
        "own, or leave out --keep texts."
    )


def batches(
    texts: Iterable[Encoded | None], batch_tokens: int, device: str = "cpu", step: int = 1
) -> Iterator[list[Encoded]]:
    """Texts in batches of similar length, in an order that depends on corpus and device.

    None stands for a text that is done: the others are in the same batches as ever. Texts without a token come in lists
    of their own, to be counted. Lengths count in multiples of `step`, so that
    batches of one length have one number of texts.
    """
    first = min(FIRST.get(device, FIRST["cpu"]), WINDOW)
    stream, size, seen = iter(texts), first, 0
    waiting: list[Encoded] = []
    while (window := list(islice(stream, size))) or waiting:
        seen, more = seen + len(window), len(window) == size
        size = min(2 * size if device == "cpu" else max(first, seen // 4), WINDOW)
        left = [text for text in window if text is not None]
        full = [text for text in left if len(text.source) > 0]
        if len(full) < len(left):
            yield [text for text in left if len(text.source) == 0]
        full = sorted([*waiting, *full], key=lambda text: (len(text.source), len(text.target or ())), reverse=True)
        start = 0
        while start < len(full):
            # Sorted by length: the first is the longest, and all are padded to it.
            stop = start + max(1, batch_tokens // _padded_tokens(full[start], step))
            if stop > len(full) and more:
                break  # texts of the next window complete it
            yield full[start:stop]
            start = stop
        waiting = full[start:]


def _padded_tokens(text: Encoded, step: int) -> int:
    """The number of tokens of a text, with each side rounded up to a multiple of `step`."""
    return sum(-(-len(side) // step) * step for side in (text.source, text.target) if side is not None)
