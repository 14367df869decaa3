"""Saved states of an interrupted run, from which it resumes to the same numbers."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lorgnette.errors import UserError, reason
from lorgnette.files import hidden, written_whole
from lorgnette.lens.base import Lens
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.text_set import TextSet
from lorgnette.looking.texts import Analysed, Counts
from lorgnette.models.loading import tensors_hash
from lorgnette.types import Json

EVERY = 20.0
"""Seconds between two saves."""
LOOK, BEFORE = "states", "before"
"""Files of the look itself, and of the pass before it that some lenses need."""
UNFINISHED = "unfinished"
TEXTS = "texts"
"""The file that names the texts in the states (`TextSet`)."""


class Keeper:
    """Keeps the lenses' states, and which texts are in them, beside the folder to be written: a file for each process.

    A run with another number of processes goes on from all these files: those with a number that no process has are
    shared out, and go once their states are in the file of whoever took them.
    """

    def __init__(self, folder: Path, fingerprint: Json, ranks: ProcessRank, name: str = LOOK) -> None:
        self.folder, self.ranks, self.fingerprint, self.name = folder, ranks, fingerprint, name
        self.file: Path = self._file(ranks.rank)
        self.taken: list[Path] = []
        """Files of processes that have ended, whose states this process has taken over."""
        self.last: float = time.monotonic()

    def _file(self, number: int) -> Path:
        return self.folder / f"{self.name}-{number}.safetensors"

    @staticmethod
    def open(
        out: str | os.PathLike[str], resume: bool, fingerprint: Json, ranks: ProcessRank, name: str = LOOK
    ) -> "Keeper":
        keeper = Keeper(hidden(out, UNFINISHED), fingerprint, ranks, name)
        if not resume and ranks.first:
            for file in keeper.folder.glob(f"{name}-*"):
                file.unlink(missing_ok=True)
        return keeper

    def restore(self, lenses: Sequence[Lens]) -> tuple[Analysed, TextSet]:
        """Restore saved states; returns what they hold, and the texts that the states of all processes hold."""
        kept, mine, everybody = self._kept(), Analysed(), TextSet()
        for number, texts in kept.items():
            everybody.update(texts)
            if number % self.ranks.world == self.ranks.rank:
                self._take(lenses, number, mine)
        if len(everybody) != sum(map(len, kept.values())):
            raise self._damaged("a text is in two of its files")
        return mine, everybody

    def _kept(self) -> dict[int, TextSet]:
        """The texts in each file. A file whose texts are all in another one was about to be deleted."""
        kept: dict[int, TextSet] = {}
        for file in self.folder.glob(f"{self.name}-[0-9]*.safetensors"):
            number = int(file.stem.rpartition("-")[2])
            with self._reading(file) as stored:
                about = json.loads(stored.metadata()["lorgnette"])
                fingerprint, kept[number] = dict(about["fingerprint"]), TextSet(stored.get_tensor(TEXTS))
            changed = [key for key, value in self.fingerprint.items() if fingerprint.get(key) != value]
            if changed:
                raise UserError(
                    f"The interrupted run in {self.folder} differs from this one ({', '.join(changed)}); its numbers "
                    "cannot be mixed with yours. Give the same arguments as then, or run without --resume."
                )
        for number, texts in sorted(kept.items(), reverse=True):
            if any(texts <= others for other, others in kept.items() if other != number):
                self._replaces(number)
                del kept[number]
        return dict(sorted(kept.items()))

    def _take(self, lenses: Sequence[Lens], number: int, mine: Analysed) -> None:
        """Add the states of a file to those that were read before."""
        with self._reading(self._file(number)) as stored:
            about = json.loads(stored.metadata()["lorgnette"])
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118  (not a dict)
            if about["hash"] != _hash(tensors, about["counts"]):
                raise ValueError("its numbers are not those that were written")
            counts = Counts(**about["counts"])
            refuse_unlike(lenses, tensors)
        for place, lens in enumerate(lenses):
            states = {name: tensors[f"{place}.{name}"] for name in lens.states.tensors()}
            if len(mine.numbers) > 0:
                lens.states.take_in([lens.states.tensors(), states])
            else:
                lens.states.restore(states)
        mine.numbers.update(TextSet(tensors[TEXTS]))
        mine.counts = Counts.total([mine.counts, counts])
        self._replaces(number)

    def _replaces(self, number: int) -> None:
        """Note that the file of this process will hold the texts of that one, which can then be deleted."""
        if number >= self.ranks.world and number % self.ranks.world == self.ranks.rank:
            self.taken.append(self._file(number))

    @contextmanager
    def _reading(self, file: Path) -> Iterator[safe_open]:
        try:
            with safe_open(file, framework="pt") as stored:
                yield stored
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise self._damaged(reason(error)) from error

    def _damaged(self, why: str) -> UserError:
        return UserError(
            f"The state that the interrupted run saved in {self.folder} is damaged ({why}). Run without --resume."
        )

    def due(self, lenses: Sequence[Lens], analysed: Analysed) -> None:
        """Save the states if a save is due."""
        if time.monotonic() - self.last >= EVERY:
            self.keep_if_possible(lenses, analysed)

    def keep_if_possible(self, lenses: Sequence[Lens], analysed: Analysed) -> None:
        """Save the states; if that fails the run continues, and only the chance to resume is lost."""
        try:
            self.keep(lenses, analysed)
        except UserError as error:
            self.last = time.monotonic()
            print(f"lorgnette: {error} Until then --resume has less to go on from.", file=sys.stderr)

    def keep(self, lenses: Sequence[Lens], analysed: Analysed) -> None:
        tensors = {**states_of(lenses), TEXTS: analysed.numbers.packed()}
        counts = asdict(analysed.counts)
        metadata = {"counts": counts, "fingerprint": self.fingerprint, "hash": _hash(tensors, counts)}
        with written_whole(self.file) as partial:
            save_file(tensors, partial, metadata={"lorgnette": json.dumps(metadata)})
        while self.taken:  # until here, both files hold these texts, and only this one counts
            self.taken.pop().unlink(missing_ok=True)
        self.last = time.monotonic()

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def states_of(lenses: Sequence[Lens]) -> dict[str, Tensor]:
    """The states of several lenses, as they are written: by the number of the lens and their name."""
    return {
        f"{number}.{name}": state.contiguous()
        for number, lens in enumerate(lenses)
        for name, state in lens.states.tensors().items()
    }


def refuse_unlike(lenses: Sequence[Lens], tensors: Mapping[str, Tensor]) -> None:
    """States of other types or dimensions would give other numbers, or fail much later: KeyError or ValueError."""
    for number, lens in enumerate(lenses):
        for name, state in lens.states.tensors().items():
            stored = tensors[f"{number}.{name}"]
            if stored.dtype != state.dtype or stored.dim() != state.dim():
                raise ValueError(f"the state {name!r} of {lens.name!r} is of another kind")


def _hash(tensors: dict[str, Any], counts: Json) -> str:
    """A checksum that reveals a flipped bit, which would become a wrong number."""
    return f"{sorted(counts.items())} {tensors_hash(tensors)}"
