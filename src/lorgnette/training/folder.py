"""The folder of a run: refused if it holds another, written whole, and what an interrupted run leaves beside it."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import is_zipfile

from safetensors import SafetensorError, safe_open

from lorgnette.errors import UserError, reason
from lorgnette.files import cleared, hidden, is_locked, locked, recover, write_whole, writing
from lorgnette.types import Json

RECORD = "training.json"
_RUN = "run.json"


@dataclass(frozen=True)
class RunFolder:
    """`out` gets the finished run; checkpoints live beside it, in `.NAME.unfinished`, until then."""

    out: Path

    @property
    def work(self) -> Path:
        return hidden(self.out, "unfinished")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock on the folder: two processes that train here would delete each other's checkpoints."""
        with locked(self.work, self._busy()):
            yield

    def _busy(self) -> str:
        return (
            f"another process is training into {self.out} at this moment: wait until it has ended, or choose another "
            "folder with --out."
        )

    def refuse_another(self, settings: Json, resume: bool) -> None:
        """Raise a UserError if training would overwrite something else, or resume another run."""
        if is_locked(self.work):
            raise UserError(self._busy())
        self.refuse_other_run(settings, resume)

    def refuse_other_run(self, settings: Json, resume: bool) -> None:
        """The same check, repeated once this process holds the lock."""
        with writing(self.out):
            recover(self.out)
            if self.out.exists() and not self.out.is_dir():
                raise UserError(f"{self.out} is a file; a folder is needed.")
        if self.out.is_dir() and any(self.out.iterdir()):
            self._refuse_finished(settings, resume)
        elif self.checkpoint() is not None:
            self._refuse_unfinished(settings, resume)

    def _refuse_finished(self, settings: Json, resume: bool) -> None:
        record = self.out / RECORD
        if not record.is_file():
            raise UserError(f"{self.out} contains something other than a training run: choose a new folder with --out.")
        if not resume:
            raise UserError(
                f"{self.out} already contains a run: choose another folder with --out, or delete it. Nothing was "
                "changed."
            )
        refuse_changes(read_record(record).get("settings", {}), settings, self.out)

    def _refuse_unfinished(self, settings: Json, resume: bool) -> None:
        if not resume:
            raise UserError(
                f"an unfinished run into {self.out} lies in {self.work}: pass --resume to go on with it, or delete it."
            )
        refuse_changes(read_record(self.work / _RUN).get("settings"), settings, self.work)

    def finished(self) -> Json | None:
        """The record of a run that is complete."""
        record = self.out / RECORD
        return read_record(record) if record.is_file() else None

    def checkpoint(self) -> Path | None:
        """The last checkpoint that was written to the end."""
        return next(reversed(self.checkpoints()), None)

    def checkpoints(self) -> list[Path]:
        """All checkpoints that were written to the end, by step."""
        if not (self.work / _RUN).is_file():
            return []
        whole = [path for path in self.work.glob("checkpoint-*") if _is_whole(path)]
        return sorted(whole, key=lambda path: int(path.name.split("-")[1]))

    def anchor(self, checkpoint: Path) -> None:
        """Makes a checkpoint name the best one where it lies now, if the folder was moved.

        A best checkpoint that it cannot find the Trainer would leave out, and keep the last weights instead.
        """
        file = checkpoint / "trainer_state.json"
        state = read_record(file)
        if (named := state.get("best_model_checkpoint")) is None:
            return
        best = self.work / Path(str(named)).name
        if not _has_weights(best):
            raise UserError(f"the best checkpoint {best} is missing: delete {self.work} and start again.")
        if str(best) != named:
            write_whole(file, json.dumps({**state, "best_model_checkpoint": str(best)}))

    def begin(self, settings: Json, fingerprint: str) -> None:
        """Make the working folder, and delete what an earlier run left there without a checkpoint."""
        started = {"settings": settings, "corpus_fingerprint": fingerprint}
        if self.checkpoint() is not None:
            stored = read_record(self.work / _RUN)
            if stored.get("corpus_fingerprint") != fingerprint:
                raise UserError(
                    f"the texts have changed since the run in {self.work} was interrupted: it cannot continue with "
                    "other texts. Delete it and start again."
                )
            return
        cleared(self.work)
        write_whole(self.work / _RUN, json.dumps(started, indent=1))

    def end(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)


def _is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint has every file that resuming needs, each complete; without one the numbers would differ.

    The Trainer writes its state last. Archives of torch end with their table of contents, so one that was cut off is
    no archive; the header of safetensors says how long the file must be.
    """
    if not re.fullmatch(r"checkpoint-[0-9]{1,12}", checkpoint.name):
        return False
    random_states = list(checkpoint.glob("rng_state*.pth"))
    archives = [checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *random_states]
    return (
        bool(random_states)
        and all(is_zipfile(archive) for archive in archives)
        and _has_state(checkpoint / "trainer_state.json")
        and _has_weights(checkpoint)
    )


def _has_state(file: Path) -> bool:
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        numbers = [state["global_step"], state["max_steps"], state["epoch"]]
        return all(isinstance(number, int | float) for number in numbers) and isinstance(state["log_history"], list)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _has_weights(checkpoint: Path) -> bool:
    files = list(checkpoint.glob("*.safetensors"))
    try:
        for file in files:
            with safe_open(file, framework="pt"):
                pass
    except (SafetensorError, OSError):
        return False
    return bool(files)


def read_record(path: Path) -> Json:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}): delete its folder and start again.") from error
    if not isinstance(document, dict):
        raise UserError(f"{path} is not the record of a run: delete its folder and start again.")
    return document


def refuse_changes(before: object, now: Json, where: Path) -> None:
    before = before if isinstance(before, dict) else {}
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if changed:
        raise UserError(
            f"{where} holds another run, which differs in {', '.join(changed)}: give the same settings to go on with "
            "it, or another --out."
        )
