"""Saved states of an interrupted run, from which it resumes to the same numbers."""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lorgnette.errors import UserError, reason
from lorgnette.files import hidden, written_whole
from lorgnette.lens.base import Lens
from lorgnette.looking.processes import ProcessRank
from lorgnette.models.loading import tensors_hash
from lorgnette.types import Json

EVERY = 20.0
"""Seconds between two saves."""
LOOK, BEFORE = "states", "before"
"""Files of the look itself, and of the pass before it that some lenses need."""


class Keeper:
    """Keeps the lenses' states, with the number of batches that are in them, beside the folder to be written."""

    folder: Path
    ranks: ProcessRank

    def __init__(self, folder: Path, fingerprint: Json, ranks: ProcessRank, name: str = LOOK) -> None:
        self.folder, self.ranks = folder, ranks
        self.fingerprint = {**fingerprint, "processes": ranks.world}
        self.file: Path = folder / f"{name}-{ranks.rank}.safetensors"
        self.last: float = time.monotonic()

    @staticmethod
    def open(
        out: str | os.PathLike[str], resume: bool, fingerprint: Json, ranks: ProcessRank, name: str = LOOK
    ) -> "Keeper":
        keeper = Keeper(hidden(out, "unfinished"), fingerprint, ranks, name)
        if not resume and ranks.first:
            for file in keeper.folder.glob(f"{name}-*"):
                file.unlink(missing_ok=True)
        return keeper

    def restore(self, lenses: Sequence[Lens]) -> int:
        """Restore saved states and return the number of batches in them (0 if there are none)."""
        if not self.file.exists():
            return 0
        try:
            with safe_open(self.file, framework="pt") as stored:
                about = json.loads(stored.metadata()["lorgnette"])
                tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118  (not a dict)
            batches, fingerprint = about["batches"], dict(about["fingerprint"])
            if about["hash"] != _hash(tensors, batches):
                raise ValueError("its numbers are not those that were written")
            if not isinstance(batches, int) or batches < 0:
                raise ValueError(f"{batches!r} batches")
            refuse_unlike(lenses, tensors)
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise UserError(
                f"The state that the interrupted run saved in {self.folder} is damaged ({reason(error)}). Run "
                "without --resume."
            ) from error
        changed = [key for key, value in self.fingerprint.items() if fingerprint.get(key) != value]
        if changed:
            raise UserError(
                f"The interrupted run in {self.folder} differs from this one ({', '.join(changed)}); its numbers "
                "cannot be mixed with yours. Give the same arguments as then, or run without --resume."
            )
        for number, lens in enumerate(lenses):
            lens.states.restore({name: tensors[f"{number}.{name}"] for name in lens.states.tensors()})
        return int(batches)

    def due(self, lenses: Sequence[Lens], batches: int) -> None:
        """Save the states if a save is due."""
        if time.monotonic() - self.last >= EVERY:
            self.keep_if_possible(lenses, batches)

    def keep_if_possible(self, lenses: Sequence[Lens], batches: int) -> None:
        """Save the states; if that fails the run continues, and only the chance to resume is lost."""
        try:
            self.keep(lenses, batches)
        except UserError as error:
            self.last = time.monotonic()
            print(f"lorgnette: {error} Until then --resume has less to go on from.", file=sys.stderr)

    def keep(self, lenses: Sequence[Lens], batches: int) -> None:
        tensors = states_of(lenses)
        metadata = {"batches": batches, "fingerprint": self.fingerprint, "hash": _hash(tensors, batches)}
        with written_whole(self.file) as partial:
            save_file(tensors, partial, metadata={"lorgnette": json.dumps(metadata)})
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


def _hash(tensors: dict[str, Any], batches: object) -> str:
    """A bit that flipped in a state would be a wrong number at the end."""
    return f"{batches} {tensors_hash(tensors)}"
