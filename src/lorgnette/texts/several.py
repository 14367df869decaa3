"""A corpus in several files: shards by a pattern (`parts/*.parquet`) or a range (`shard-{000..063}.tar`)."""

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from os.path import commonpath
from pathlib import Path, PurePath

from lorgnette.errors import UserError
from lorgnette.texts.columns import class_order
from lorgnette.texts.corpus import Corpus, SizedCorpus, Turns, whole
from lorgnette.texts.example import Example
from lorgnette.texts.remote import addresses, is_address

MOST_FILES = 1_000_000
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def is_pattern(name: str) -> bool:
    """Whether a name stands for several files."""
    return "*" in name or _RANGE.search(name) is not None


def expanded(pattern: str) -> list[str]:
    """The files of a pattern, in order: those of a range as it counts, those of a * sorted by name."""
    files = [file for one in _counted(pattern) for file in (_matching(one) if "*" in one else [one])]
    if not files:
        raise UserError(f"no file matches {pattern!r}. Give the path of a file, or another pattern.")
    return files


def several_corpus(pattern: str, files: Sequence[str], opened: Callable[[str], Corpus]) -> Corpus:
    """The texts of several files, one file after another. The name of its file precedes the id of a text.

    A file is opened when its turn comes. Classes are those of all files together.
    """
    opened = cache(opened)
    folder = commonpath([PurePath(file).parent for file in files])
    short = {file: PurePath(file).relative_to(folder).as_posix() for file in files}
    skipped: list[str] = []

    def some(wanted: Turns) -> Iterator[Example | None]:
        classes = {label: number for number, label in enumerate(corpus.labels or ())}
        skipped.clear()
        for file in files:
            one = opened(file)
            if isinstance(one, SizedCorpus) and len(one) == 0:
                continue  # who writes in parallel may leave a part without rows
            for example in one.some(wanted):
                if example is None:
                    yield None
                    continue
                label = None if example.label is None or not one.labels else classes[one.labels[example.label]]
                yield replace(example, id=f"{short[file]}:{example.id}", label=label)
            skipped.extend(f"{short[file]}:{id}" for id in one.skipped)

    def labels() -> tuple[str, ...] | None:
        known = [opened(file).labels for file in files]
        return None if None in known else class_order({label for one in known for label in one or ()})

    fields = {
        "labels": labels,
        "source": lambda: (opened(file).fingerprint().encode() for file in files),
        "skipped": skipped,
        "some": some,
    }
    sizes = [] if is_address(pattern) else _sizes(files, opened)
    corpus: Corpus
    if sizes:
        corpus = SizedCorpus(PurePath(pattern).name, lambda: whole(some), size=sum(sizes), **fields)
    else:
        corpus = Corpus(PurePath(pattern).name, lambda: whole(some), **fields)  # type: ignore[arg-type]
    return corpus


def _sizes(files: Sequence[str], opened: Callable[[str], Corpus]) -> list[int]:
    """How many texts each file has, if all files say so without being read."""
    if not all(file.lower().endswith(".parquet") for file in files):
        return []
    return [len(one) for one in map(opened, files) if isinstance(one, SizedCorpus)]


def _counted(pattern: str) -> list[str]:
    """`a-{08..10}` as a-08, a-09, a-10; several ranges count like digits."""
    found = _RANGE.search(pattern)
    if found is None:
        return [pattern]
    first, last = found.groups()
    if not int(first) <= int(last) < int(first) + MOST_FILES:
        raise UserError(f"{pattern}: {found[0]} is no range of files; expected one such as {{000..063}}.")
    numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    rest = _counted(pattern[found.end() :])
    return [f"{pattern[: found.start()]}{number}{end}" for number in numbers for end in rest]


def _matching(pattern: str) -> list[str]:
    if is_address(pattern):
        return addresses(pattern)
    paths = glob.glob(str(Path(pattern).expanduser()), recursive=True)
    return sorted(path for path in paths if Path(path).is_file())
