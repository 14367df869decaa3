"""The folder of a run: refused if it holds another, written whole, and what an interrupted run leaves beside it."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.files import written_whole

RECORD = "training.json"
_RUN = "run.json"


@dataclass(frozen=True)
class RunFolder:
    """`out` gets the finished run; checkpoints live beside it, in `.NAME.unfinished`, until then."""

    out: Path

    @property
    def work(self) -> Path:
        return self.out.with_name(f".{self.out.name}.unfinished")

    def refuse_another(self, settings: dict[str, Any], resume: bool) -> None:
        """Before any work: nothing that lies there may be lost, and only the same run may go on."""
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"{self.out} is a file; a folder is needed.")
        if self.out.is_dir() and any(self.out.iterdir()):
            self._refuse_finished(settings, resume)
        elif self.checkpoint() is not None:
            self._refuse_unfinished(settings, resume)

    def _refuse_finished(self, settings: dict[str, Any], resume: bool) -> None:
        record = self.out / RECORD
        if not record.is_file():
            raise UserError(f"{self.out} holds something else than a training run: choose a new folder with --out.")
        if not resume:
            raise UserError(
                f"{self.out} holds a run already: choose another folder with --out, or delete it. Nothing was changed."
            )
        _refuse_changes(_read(record).get("settings", {}), settings, self.out)

    def _refuse_unfinished(self, settings: dict[str, Any], resume: bool) -> None:
        if not resume:
            raise UserError(
                f"an unfinished run into {self.out} lies in {self.work}: pass --resume to go on with it, or delete it."
            )
        _refuse_changes(_read(self.work / _RUN)["settings"], settings, self.work)

    def finished(self) -> dict[str, Any] | None:
        """The record of a run that is complete."""
        record = self.out / RECORD
        return _read(record) if record.is_file() else None

    def checkpoint(self) -> Path | None:
        """The last checkpoint that was written to the end."""
        if not (self.work / _RUN).is_file():
            return None
        whole = [path for path in self.work.glob("checkpoint-*") if _is_whole(path)]
        return max(whole, key=lambda path: int(path.name.split("-")[1]), default=None)

    def begin(self, settings: dict[str, Any], fingerprint: str) -> None:
        """Makes the working folder; what an earlier run left there without a checkpoint goes."""
        started = {"settings": settings, "corpus_fingerprint": fingerprint}
        if self.checkpoint() is not None:
            kept = _read(self.work / _RUN)
            if kept["corpus_fingerprint"] != fingerprint:
                raise UserError(
                    f"the texts have changed since the run in {self.work} was interrupted: it cannot go on with "
                    "others. Delete it and start again."
                )
            return
        shutil.rmtree(self.work, ignore_errors=True)
        try:
            self.work.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"Cannot make the folder {self.work}: {error.strerror}.") from error
        with written_whole(self.work / _RUN) as partial:
            partial.write_text(json.dumps(started, indent=1), encoding="utf-8")

    def end(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)


def _is_whole(checkpoint: Path) -> bool:
    """The Trainer writes its state last; a checkpoint that was cut off has none, or one that is no JSON."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return checkpoint.name.split("-")[1].isdecimal()


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): delete its folder and start again.") from error


def _refuse_changes(before: dict[str, Any], now: dict[str, Any], where: Path) -> None:
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if changed:
        raise UserError(
            f"{where} holds another run, which differs in {', '.join(changed)}: give the same settings to go on with "
            "it, or another --out."
        )
