"""A corpus: a named, re-iterable stream of examples."""

import hashlib
import heapq
import operator
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from lorgnette.constraints import check, checked
from lorgnette.display import Facts
from lorgnette.errors import UserError, listed, shown
from lorgnette.texts.example import Example
from lorgnette.types import Json

Labels = tuple[str, ...] | None
Turns = Iterator[bool]
"""For each text in turn, whether somebody wants it."""
Some = Callable[[Turns], Iterator[Example | None]]
"""Reads a source: its texts in their order, None for each that nobody wants."""


NAMED = 10
"""Skipped items that are named, at most."""


@dataclass
class Skipped:
    """Items of a corpus that are no texts: how many, and the ids of the first ten."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, id: str) -> None:
        self.count += 1
        if len(self.first) < NAMED:
            self.first.append(id)

    def clear(self) -> None:
        self.count, self.first = 0, []

    @staticmethod
    def total(several: "Iterable[Skipped]") -> "Skipped":
        """Those of several parts of a corpus, in their order."""
        out = Skipped()
        for one in several:
            out.count += one.count
            out.first += one.first[: NAMED - len(out.first)]
        return out


class Corpus(Facts):
    """A re-iterable, lazy stream of examples: each iteration reads the source again, so memory does not grow with it.

        >>> mine = lo.corpus(texts)
        >>> [example.text[:7] for example in mine]
        ['the cat', 'a dog r']

    `len()` works only where the size is known without reading (`SizedCorpus`). `skipped` counts the examples that the
    last iteration had to skip (sentences whose gold tree is not a tree), and has the ids of the first ten.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Iterable[Example]],
        *,
        split: str | None = None,
        labels: Labels | Callable[[], Labels] = None,
        source: Callable[[], Iterable[bytes]] | None = None,
        skipped: Skipped | Callable[[], Skipped] | None = None,
        some: Some | None = None,
        parts: "Sequence[Corpus]" = (),
        mark: Callable[[], str] | None = None,
        most: int | None = None,
    ):
        self.name = name
        self.split = split
        self._skipped: Skipped | Callable[[], Skipped] = Skipped() if skipped is None else skipped
        self._read = read
        self._some = some  # reads without turning into examples what nobody wants
        self._labels = labels
        self._source = source  # the bytes that identify the content; without it the examples themselves are hashed
        self._fingerprint: str | None = None
        self._parts = tuple(parts)
        self.mark: Callable[[], str] = mark or str
        """what shows that the source has changed, as far as that can be seen without reading all of its parts"""
        self.most = most
        """the largest number of examples that there can be, where it is known: that of `take`"""

    @property
    def labels(self) -> Labels:
        """The classes, in the order of `Example.label`; None when the corpus has none."""
        if callable(self._labels):
            self._labels = self._labels()
        return self._labels

    @property
    def skipped(self) -> Skipped:
        """The examples that the last iteration had to skip."""
        return self._skipped() if callable(self._skipped) else self._skipped

    @property
    def parts(self) -> "Sequence[Corpus]":
        """What can be read by itself: its files, the shards of its data set; the corpus if it has nothing smaller."""
        return self._parts or (self,)

    def __iter__(self) -> Iterator[Example]:
        return iter(self._read())

    def some(self, wanted: Turns) -> Iterator[Example | None]:
        """Its texts in their order, None for each that is not wanted: where its reader can, that text is not parsed.

        One item of `wanted` is taken for each text, and no more.
        """
        if self._some is not None:
            return self._some(wanted)
        return (example if turn else None for example, turn in zip(self, wanted, strict=False))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the corpus with its examples: its source may not exist where it is unpickled."""
        return _unpickled, (self.name, self.split, self.labels, self.fingerprint(), tuple(self))

    def __deepcopy__(self, memo: dict[int, object]) -> "Corpus":
        return self  # already in memory

    def __repr__(self) -> str:
        split = f", split={self.split!r}" if self.split else ""
        return f"{type(self).__name__}({self.name!r}{split})"

    def facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "split": self.split,
            "classes": None if self.labels is None else ", ".join(self.labels),
            "texts": len(self) if isinstance(self, SizedCorpus) else None,
        }

    def fingerprint(self) -> str:
        """A short hash of the source's name, split, size and content: the same data gives the same hash anywhere."""
        if self._fingerprint is None:
            plain = self._source or (lambda: (repr(_plain(example)).encode() for example in self))
            self._fingerprint = _fingerprint(plain(), self.name, self.split)
        return self._fingerprint

    def identify(self, parts: Iterable[str]) -> None:
        """Its fingerprint from those of all its parts, which other processes have read."""
        self._fingerprint = joined_fingerprint(parts, self.name, self.split)

    @checked
    def take(self, n: int) -> "Corpus":
        """The first n examples (all of them when there are fewer).

        >>> [example.text for example in lo.corpus(["one", "two", "three"]).take(2)]
        ['one', 'two']
        """
        return self.derived(
            lambda: islice(self, _count(n)),
            f"take {n}",
            some=lambda wanted: islice(self.some(wanted), _count(n)),
            most=n,
            size=min(n, len(self)) if isinstance(self, SizedCorpus) else None,
        )

    @checked
    def shuffled(self, seed: int) -> "Corpus":
        """The examples in an order drawn from `seed`.

        Iterating holds all the examples in memory; `shuffled(seed).take(n)` holds n.

        >>> sample = lo.corpus(["one", "two", "three"]).shuffled(seed=0).take(2)
        >>> len(list(sample))
        2
        """
        return _Shuffled(self, operator.index(seed))

    @checked
    def named(self, name: str) -> "Corpus":
        """The same examples with another name."""
        size = len(self) if isinstance(self, SizedCorpus) else None
        return self.derived(lambda: self, f"named {name}", name=name, some=self.some, most=self.most, size=size)

    def derived(
        self, read: Callable[[], Iterable[Example]], how: str, *, size: int | None = None, **changes: object
    ) -> "Corpus":
        """A corpus of these examples in another order, number or form.

        `how` distinguishes its fingerprint from this one's; `size` is how many there are, where that is known;
        `changes` are other arguments of a corpus.
        """
        fields = {**self._inherited(how), "read": read, **changes}
        return Corpus(**fields) if size is None else SizedCorpus(**fields, size=size)

    def _inherited(self, how: str) -> dict[str, Any]:
        """The arguments of a corpus that one derived from this one has, if nobody says otherwise."""
        return {
            "name": self.name,
            "split": self.split,
            # asked only when needed: the labels of a table cost a pass over it
            "labels": lambda: self.labels,
            # without a source of its own (the hub, a generator) a few examples are cheaper to hash than the whole
            "source": (lambda: [self.fingerprint().encode(), how.encode()]) if self._source else None,
            "skipped": lambda: self.skipped,
        }

    @staticmethod
    def of(examples: Iterable[Example], *, name: str = "examples", labels: Labels = None) -> "SizedCorpus":
        """A corpus of examples already in memory.

        >>> mine = lo.Corpus.of([lo.Example("1", "it was good", label=1)], name="mine", labels=("bad", "good"))
        >>> mine.labels[next(iter(mine)).label]
        'good'
        """
        check(name, str, "name")
        check(labels, Labels, "labels")
        given = listed(examples)
        wrong = [examples] if given is None else [one for one in given if not isinstance(one, Example)]
        if wrong:
            raise UserError(f"Corpus.of takes Examples of texts, not {shown(wrong[0])}. lo.corpus makes them of texts.")
        stored = tuple(one for one in given or () if isinstance(one, Example))
        return SizedCorpus(name, lambda: stored, labels=labels, size=len(stored))

    @staticmethod
    @checked
    def from_dataset(dataset: Any, *, name: str | None = None, **columns: Any) -> "Corpus":
        """A corpus of a `datasets.Dataset`, an `IterableDataset`, or any re-iterable of dicts, texts or examples.

        `columns` as in `lorgnette.corpus` (`text_column`, `label_column`, …). A one-shot iterator is refused, since a
        corpus must be readable more than once.
        """
        from lorgnette.texts.hub import dataset_corpus

        return dataset_corpus(dataset, name=name, **columns)


class SizedCorpus(Corpus):
    """A corpus whose size is known without reading it."""

    def __init__(self, *args: Any, size: int, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._size = size

    def __len__(self) -> int:
        return self._size


class _Shuffled(Corpus):
    """The order of a sort by one random key per example, so that the first n need only n examples in memory."""

    def __init__(self, corpus: Corpus, seed: int):
        super().__init__(read=self._all, **corpus._inherited(f"shuffled {seed}"))
        self._corpus, self._seed = corpus, seed

    def _keyed(self) -> Iterator[tuple[float, int, Example]]:
        draw = random.Random(self._seed)
        for index, example in enumerate(self._corpus):
            yield draw.random(), index, example

    def _all(self) -> Iterator[Example]:
        return (example for _, _, example in sorted(self._keyed(), key=lambda keyed: keyed[:2]))

    def _first(self, n: int) -> Iterator[Example]:
        return (example for _, _, example in heapq.nsmallest(n, self._keyed(), key=lambda keyed: keyed[:2]))

    @checked
    def take(self, n: int) -> Corpus:
        return self.derived(lambda: self._first(_count(n)), f"take {n}", most=n)


def in_parts(
    name: str,
    parts: Sequence[Corpus],
    *,
    split: str | None = None,
    labels: Labels | Callable[[], Labels] = None,
    sizes: Sequence[int] = (),
    mark: Callable[[], str] | None = None,
) -> Corpus:
    """A corpus of several, one after another. Whoever wants a share of the texts reads no parts but those it is in.

    `sizes`: how many texts each of them has, where that is known. `mark`: see `Corpus.mark`.
    """

    def some(wanted: Turns) -> Iterator[Example | None]:
        return chain.from_iterable(part.some(wanted) for part in parts)

    fields: Json = {
        "split": split,
        "labels": labels,
        "source": lambda: (part.fingerprint().encode() for part in parts),
        "skipped": lambda: Skipped.total(part.skipped for part in parts),
        "some": some,
        "parts": parts,
        "mark": mark,
    }
    if sizes:
        return SizedCorpus(name, lambda: whole(some), size=sum(sizes), **fields)
    return Corpus(name, lambda: whole(some), **fields)


def joined_fingerprint(parts: Iterable[str], name: str, split: str | None) -> str:
    """The fingerprint of a corpus in parts, from theirs."""
    return _fingerprint((part.encode() for part in parts), name, split)


def _fingerprint(chunks: Iterable[bytes], name: str, split: str | None) -> str:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    digest.update(f"\0{name}\0{split}\0{size}".encode())
    return digest.hexdigest()[:16]


def whole(some: Some) -> Iterator[Example]:
    """All texts of a source."""
    return (example for example in some(repeat(True)) if example is not None)


def _unpickled(
    name: str, split: str | None, labels: Labels, fingerprint: str, examples: tuple[Example, ...]
) -> SizedCorpus:
    made = SizedCorpus(name, lambda: examples, split=split, labels=labels, size=len(examples))
    made._fingerprint = fingerprint
    return made


def _count(n: int) -> int:
    if n < 0:
        raise UserError(f"cannot take {n} examples of a corpus: give 0 or more.")
    return min(n, sys.maxsize)


def _plain(example: Example) -> list[tuple[str, Any]]:
    """An example as plain values, whose repr is the same in every process."""
    fields = {key: value for key, value in vars(example).items() if key != "parts" or value}
    return [(key, sorted(value.items()) if hasattr(value, "items") else value) for key, value in fields.items()]
