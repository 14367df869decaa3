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
from lorgnette.texts.corpus import Corpus, SizedCorpus, Turns, in_parts, whole
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

    def labels() -> tuple[str, ...] | None:
        known = [opened(file).labels for file in files]
        return None if None in known else class_order({label for one in known for label in one or ()})

    parts = [
        _File(file, PurePath(file).relative_to(folder).as_posix(), opened, lambda: corpus.labels) for file in files
    ]
    sizes = [] if is_address(pattern) else _sizes(files, opened)
    for part, size in zip(parts, sizes, strict=False):
        part.most = size
    corpus = in_parts(PurePath(pattern).name, parts, labels=labels, sizes=sizes)
    return corpus


class _File(Corpus):
    """One of several files, with the classes of all."""

    def __init__(
        self, file: str, name: str, opened: Callable[[str], Corpus], labels: Callable[[], tuple[str, ...] | None]
    ) -> None:
        super().__init__(name, lambda: whole(self._texts), labels=labels, some=self._texts)
        self._file, self._opened = file, opened

    def _texts(self, wanted: Turns) -> Iterator[Example | None]:
        classes = {label: number for number, label in enumerate(self.labels or ())}
        self.skipped.clear()
        one = self._opened(self._file)
        if isinstance(one, SizedCorpus) and len(one) == 0:
            return  # who writes in parallel may leave a part without rows
        for example in one.some(wanted):
            if example is None:
                yield None
                continue
            label = None if example.label is None or not one.labels else classes[one.labels[example.label]]
            yield replace(example, id=f"{self.name}:{example.id}", label=label)
        self.skipped.count, self.skipped.first = one.skipped.count, [f"{self.name}:{id}" for id in one.skipped.first]

    def fingerprint(self) -> str:
        """That of the file, whatever it is called here."""
        return self._opened(self._file).fingerprint()


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
