"""How frequent words and word pieces are: ranks from 1, the most frequent first."""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from lorgnette.errors import UserError, optional
from lorgnette.texts.files import COMPRESSED, existing_file, lines

Kind = TypeVar("Kind", bound=Hashable)
BERT_FILE = "bert_frequency/rank_count_ids.txt"


@dataclass(frozen=True)
class FrequencyRanks(Generic[Kind]):
    """Frequency ranks by word (or by word-piece id); equal counts share a rank.

    What was never seen ranks after everything else: `last + 1` (as in Kobayashi et al. 2020).
    """

    ranks: Mapping[Kind, int]
    source: str

    @cached_property
    def last(self) -> int:
        return max(self.ranks.values())

    def __getitem__(self, kind: Kind) -> int:
        rank = self.ranks.get(kind)
        return self.last + 1 if rank is None else rank

    def __contains__(self, kind: Kind) -> bool:
        return kind in self.ranks

    def __len__(self) -> int:
        return len(self.ranks)


def counted(counts: Mapping[Kind, int | float], source: str) -> FrequencyRanks[Kind]:
    """Ranks from counts: 1 + the number of words that are more frequent."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    ranks: dict[Kind, int] = {}
    rank, previous = 0, None
    for place, (kind, count) in enumerate(ordered, 1):
        if count != previous:
            rank, previous = place, count
        ranks[kind] = rank
    if not ranks:
        raise UserError(f"{source}: nothing to count; expected at least one word.")
    return FrequencyRanks(ranks, source)


def bert_ranks(data: str | Path | None = None) -> FrequencyRanks[int]:
    """Ranks of the word-piece ids of bert-base-uncased in Wikipedia, the file of Kobayashi et al. 2020.

    Found below `data` or LORGNETTE_DATA, or `data` is the file itself: lines of rank, count and id. The ids are those
    of the bert-base-uncased vocabulary and mean nothing for a model with another one.
    """
    path = _bert_file(data)
    ranks: dict[int, int] = {}
    for number, line in lines(path):
        fields = line.split()
        if len(fields) != 3 or not all(field.isdecimal() for field in fields):
            raise UserError(f"{path}, line {number}: {line.strip()[:40]!r}; expected rank, count and word-piece id.")
        ranks[int(fields[2])] = int(fields[0])
    return FrequencyRanks(ranks, path.name)


def _bert_file(data: str | Path | None) -> Path:
    given = data if data is not None else os.environ.get("LORGNETTE_DATA")
    if not given:
        raise UserError("no folder for the frequency ranks of BERT's word pieces: set LORGNETTE_DATA or give data=.")
    given = Path(given).expanduser()
    if given.is_file():
        return given
    paths = (given / (BERT_FILE + suffix) for suffix in ("", *COMPRESSED))
    return next((path for path in paths if path.is_file()), None) or existing_file(given / BERT_FILE)


def wordfreq_ranks(language: str = "en", *, limit: int = 200_000) -> FrequencyRanks[str]:
    """Ranks of the most frequent words of a language, from the `wordfreq` package (Speer 2022).

    Its frequencies are rounded, so many words share a rank; digits in longer numbers are lumped together as zeros.
    """
    wordfreq = optional("wordfreq", "frequency")

    known = wordfreq.available_languages("best")
    if language not in known:
        raise UserError(f"wordfreq has no language {language!r}; it has {', '.join(sorted(known))}.")
    frequencies = wordfreq.get_frequency_dict(language, wordlist="best")
    most = sorted(frequencies.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return counted(dict(most), f"wordfreq {language}")
