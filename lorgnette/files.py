"""Files and folders that are written whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lorgnette.errors import UserError


def _beside(path: Path, purpose: str) -> Path:
    """A hidden name on the same file system as `path`, so that renaming is atomic."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{purpose}")


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` only if the block ends without an exception."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; a file name is needed.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the folder {path.parent}: {error.strerror}.") from error
    partial = _beside(path, "partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(folder: str | os.PathLike[str], ours: Callable[[Path], set[str]]) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of `folder` only if the block ends without an exception.

    `ours(folder)` names the entries of an existing folder that we wrote and may replace; what else lies in there (a
    report, the reader's notes) is carried over, never deleted.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; a folder is needed.")
    replaceable = ours(folder) if folder.exists() else set()
    partial, aside = _beside(folder, "partial"), _beside(folder, "old")
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"Cannot make the folder {folder}: {error.strerror}.") from error
    try:
        yield partial
        if folder.exists():
            os.rename(folder, aside)
        try:
            os.rename(partial, folder)
        except OSError:
            if aside.exists():
                os.rename(aside, folder)
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if aside.exists():
        for entry in aside.iterdir():
            if entry.name not in replaceable and not (folder / entry.name).exists():
                os.rename(entry, folder / entry.name)
        shutil.rmtree(aside)
