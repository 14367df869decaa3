"""Coreference: the mentions in a treebank's sentences, their chains, and passages made of the sentences."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.tables import tsv_rows
from lorgnette.types import Row

KINDS = ("pronoun", "proper", "nominal")
PASSAGE = 100
"""Words of a passage: about 128 pieces, as Clark et al. 2019 cut their documents."""


class Mention(NamedTuple):
    """A mention: a span of words that refers to somebody or something; a chain refers to the same one."""

    first: int
    end: int  # the word behind the last
    head: int  # the word on which the others hang
    chain: str
    kind: str  # pronoun, proper, nominal: by the part of speech of the head


def mentions_of(example: Example) -> tuple[Mention, ...]:
    """The mentions of an example, in the order of their head words.

    From `extra["mentions"]` where there are some, else from the `Entity=` brackets of the CoNLL-U miscellany column,
    whose group is the chain. The head is the word of the span that hangs on a word outside. A mention in several
    pieces, and one that goes on in another sentence, are left out.
    """
    if "mentions" in example.extra:
        return tuple(Mention(*mention) for mention in example.extra["mentions"])
    if "misc" not in example.extra or "entities" not in example.extra or example.heads is None:
        raise UserError(
            f"The text {example.id!r} has no coreference chains. Give a treebank with Entity= in its last column and "
            "global.Entity above it, such as 'ud_en_gum:passages'."
        )
    out = []
    for first, end, chain in _brackets(example.extra["misc"]):
        head = _head(example.heads, first, end)
        upos = example.tags.get("upos", ("_",) * len(example.heads))[head]
        kind = {"PRON": "pronoun", "DET": "pronoun", "PROPN": "proper"}.get(upos, "nominal")
        out.append(Mention(first, end, head, chain, kind))
    return tuple(sorted(out, key=lambda mention: (mention.head, mention.first, mention.end)))


def _brackets(misc: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    open_: list[tuple[str, int]] = []
    for index, column in enumerate(misc):
        value = next((item.removeprefix("Entity=") for item in column.split("|") if item.startswith("Entity=")), "")
        for start, end, alone in re.findall(r"\(([^()]+)(\)?)|([^()]+)\)", value):
            group = (start or alone).split("-")[0]
            if "[" in group:  # one of several pieces
                continue
            if start and end:
                yield index, index + 1, group
            elif start:
                open_.append((group, index))
            else:
                at = next((i for i in reversed(range(len(open_))) if open_[i][0] == group), None)
                if at is not None:
                    yield open_.pop(at)[1], index + 1, group


def _head(heads: Sequence[int], first: int, end: int) -> int:
    """The first word of a span whose head is outside of it."""
    return next((word for word in range(first, end) if not first <= heads[word] - 1 < end), first)


def subjects_of(example: Example) -> frozenset[int] | None:
    """The words that are subjects of their clauses, from `extra["subjects"]` or the tree; None: nobody says."""
    if "subjects" in example.extra:
        return frozenset(example.extra["subjects"])
    if example.relations is None:
        return None
    return frozenset(at for at, name in enumerate(example.relations) if name.partition(":")[0] == "nsubj")


def gap(path: Path) -> Iterator[Example]:
    """GAP (Webster et al. 2018): a pronoun, and two names before it of which one is its antecedent.

    Left out are rows whose pronoun means neither name, and rows with a name behind the pronoun: nothing is to be chosen
    there among what stands before. The head word of a name is its last word, where a decoder has seen all of it. GAP
    has no trees; `extra["subjects"]` has the first of the two names in each sentence, because English puts subjects
    first.
    """
    for number, row in tsv_rows(path):
        if (example := _gap_example(row, f"{path}, line {number}")) is not None:
            yield example


def _gap_example(row: Row, where: str) -> Example | None:
    text, places = row["Text"], [match.span() for match in re.finditer(r"\w+|[^\w\s]", row["Text"])]
    begins, ends = ({span[side]: word for word, span in enumerate(places)} for side in (0, 1))
    spans = {}
    for name in ("A", "B", "Pronoun"):
        start = int(row[f"{name}-offset"])
        first, last = begins.get(start), ends.get(start + len(row[name]))
        if first is None or last is None:
            raise UserError(f"{where}: no words {row[name]!r} at character {start} of the text.")
        spans[name] = first, last
    own = [name for name in ("A", "B") if row[f"{name}-coref"].upper() == "TRUE"]
    pronoun = spans["Pronoun"][0]
    if len(own) != 1 or max(spans["A"][1], spans["B"][1]) >= pronoun:
        return None
    chains = {"A": "A", "B": "B", "Pronoun": own[0]}
    kinds = {"A": "proper", "B": "proper", "Pronoun": "pronoun"}
    mentions = [Mention(first, last + 1, last, chains[name], kinds[name]) for name, (first, last) in spans.items()]
    ordered = tuple(sorted(mentions, key=lambda mention: mention.head))
    stops = [match.end() for match in _SENTENCE_ENDS.finditer(text)]
    firsts: dict[int, int] = {}
    for mention in ordered[:2]:
        firsts.setdefault(bisect(stops, places[mention.first][0]), mention.head)
    words = tuple(text[start:end] for start, end in places)
    extra = {"mentions": ordered, "subjects": tuple(firsts.values()), "url": row["URL"]}
    return Example(row["ID"], text, words=words, extra=extra)


_SENTENCE_ENDS = re.compile(r"(?<!\b[A-Z])[.!?]['\")\]]*(?=\s+['\"(\[]*[A-Z])")  # not behind an initial


def passages(corpus: Corpus, words: int = PASSAGE) -> Corpus:
    """Consecutive sentences of a document joined into texts of at most `words` words, with their mentions.

    A sentence that is longer stands alone. The joined text has words, parts of speech and mentions; it has no tree.
    """
    return Corpus(
        corpus.name,
        lambda: _joined(corpus, words),
        split=corpus.split,
        source=corpus._source,
        skipped=lambda: corpus.skipped,
    )


def _joined(corpus: Iterable[Example], words: int) -> Iterator[Example]:
    for document, sentences in groupby(corpus, key=lambda example: example.extra.get("document")):
        held: list[Example] = []
        for example in sentences:
            if held and sum(len(e.words or ()) for e in held) + len(example.words or ()) > words:
                yield _passage(held, document)
                held = []
            held.append(example)
        yield _passage(held, document)


def _passage(sentences: Sequence[Example], document: str | None) -> Example:
    forms: list[str] = []
    upos: list[str] = []
    mentions: list[Mention] = []
    subjects: list[int] | None = []
    for example in sentences:
        at = len(forms)
        own = subjects_of(example)
        subjects = None if own is None or subjects is None else [*subjects, *(at + word for word in sorted(own))]
        forms += example.words or ()
        upos += example.tags.get("upos", ("_",) * len(example.words or ()))
        mentions += [m._replace(first=m.first + at, end=m.end + at, head=m.head + at) for m in mentions_of(example)]
    return Example(
        id=sentences[0].id,
        text=" ".join(forms),
        words=tuple(forms),
        tags={"upos": tuple(upos)},
        extra={
            "mentions": tuple(mentions),
            "document": document,
            "sentences": len(sentences),
            **({} if subjects is None else {"subjects": tuple(subjects)}),
        },
    )
