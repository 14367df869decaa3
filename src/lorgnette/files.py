"""Files and folders that are written whole or not at all, whatever stops the writer; one writer at a time.

A folder is exchanged by two renames. What a killed process leaves (`.NAME.xxxx.partial`, `.NAME.xxxx.old`) is put in
order by the next one that writes the same name: a finished folder takes its place, the reader's own files go back to
where they were, and what was never finished goes. `flock` tells the dead from the living: it ends with its process.
"""

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lorgnette.errors import UserError, shown

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing that may belong to a living process is removed
    fcntl = None  # type: ignore[assignment]


def real(path: str | os.PathLike[str]) -> Path:
    """The path without links and dots: what is written beside it lies on its own disk, and it has a name."""
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"A path is a string or a Path. Got {shown(path)} instead.")
    resolved = Path(os.path.realpath(path))
    if not resolved.name:
        raise UserError(f"{path} is the root of the disk: choose a path inside it.")
    return resolved


def hidden(path: str | os.PathLike[str], purpose: str) -> Path:
    """A hidden name on the same file system as `path`, so that renaming is atomic."""
    path = real(path)
    return path.with_name(f".{path.name}.{purpose}")


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` only if the block ends without an exception."""
    with writing(path):
        path = real(path)
        if path.is_dir():
            raise UserError(f"{path} is a folder; a file name is needed.")
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is a device, not a file; name a file.")
        with _partial(path) as (folder, _):
            yield folder / path.name
            os.replace(folder / path.name, path)


def write_whole(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file; it takes the place of `path` only when all of it is written."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return Path(path)


@contextmanager
def folder_written_whole(folder: str | os.PathLike[str], ours: Callable[[Path], set[str]]) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of `folder` only if the block ends without an exception.

    `ours(folder)` names the entries of an existing folder that we wrote and may replace; what else lies in there (a
    report, the reader's notes) is carried over, never deleted.
    """
    with writing(folder):
        folder = real(folder)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file; a folder is needed.")
        recover(folder, ours)
        if folder.exists():
            ours(folder)  # somebody else's folder is refused before the work
        with _partial(folder) as (partial, token):
            yield partial
            with _one_at_a_time(folder.parent):
                if folder.exists():
                    _refuse_collision(folder, partial, ours)
                    os.rename(folder, hidden(folder, f"{token}.old"))
                try:
                    _finish(folder, token, ours)
                finally:
                    if not folder.exists():  # it could not be put in place: what was there before comes back
                        shutil.rmtree(partial, ignore_errors=True)
                        _finish(folder, token, ours)


def recover(folder: str | os.PathLike[str], ours: Callable[[Path], set[str]] = lambda _: set()) -> None:
    """Puts in order what a process that was killed while it wrote `folder` has left behind."""
    folder = real(folder)
    if not _left(folder, "old", "trash"):
        return
    with writing(folder), _one_at_a_time(folder.parent):
        for left in _left(folder, "old", "trash"):
            if left.name.endswith(".trash"):
                shutil.rmtree(left, ignore_errors=True)
            else:
                _finish(folder, left.name.split(".")[-2], ours)


def _finish(folder: Path, token: str, ours: Callable[[Path], set[str]]) -> None:
    """From any moment after the old folder was put aside to the end: the new one in place, with the reader's files."""
    partial, aside, trash = (hidden(folder, f"{token}.{purpose}") for purpose in ("partial", "old", "trash"))
    if partial.exists() and not folder.exists():
        os.rename(partial, folder)
    if not aside.exists():
        return
    if not folder.exists():  # the new one is gone: what was there before comes back
        os.rename(aside, folder)
        return
    replaced = ours(aside)
    for entry in aside.iterdir():
        if entry.name not in replaced and not (folder / entry.name).exists():
            os.rename(entry, folder / entry.name)
    os.rename(aside, trash)  # what is in here now is ours: from here on it may go at any time
    shutil.rmtree(trash, ignore_errors=True)


def _refuse_collision(folder: Path, partial: Path, ours: Callable[[Path], set[str]]) -> None:
    new, own = {entry.name for entry in partial.iterdir()}, ours(folder)
    lost = sorted(entry.name for entry in folder.iterdir() if entry.name in new and entry.name not in own)
    if lost:
        raise UserError(
            f"{folder / lost[0]} was not written by this command, which would replace it. Move it, or choose another "
            "folder."
        )


@contextmanager
def _partial(path: Path) -> Iterator[tuple[Path, str]]:
    """A new hidden folder beside `path`, locked while it is filled; those that dead processes left go."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UserError(f"{path.parent} is a file; a folder is needed.") from error
    token = secrets.token_hex(4)
    partial = hidden(path, f"{token}.partial")
    with ExitStack() as held:
        with _one_at_a_time(path.parent):
            for left in _left(path, "partial"):
                _remove_if_dead(left)
            partial.mkdir()
            held.enter_context(_flock(partial))
        try:
            yield partial, token
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _left(path: Path, *purposes: str) -> list[Path]:
    """What lies beside `path` under one of our hidden names for it."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.({'|'.join(purposes)})")
    try:
        return sorted(entry for entry in path.parent.iterdir() if name.fullmatch(entry.name))
    except OSError:  # no such folder yet, or one that cannot be listed: writing there will say so
        return []


def sweep(folder: Path) -> None:
    """Removes what dead processes left of files that they wrote into `folder`, and that nobody writes again."""
    if folder.is_dir():
        with writing(folder), _one_at_a_time(folder):
            for entry in folder.iterdir():
                if re.fullmatch(r"\..+\.[0-9a-f]{8}\.partial", entry.name):
                    _remove_if_dead(entry)


def _remove_if_dead(partial: Path) -> None:
    if fcntl is None or partial.with_suffix(".old").exists():
        return  # a whole folder that waits for its place: `recover` puts it there
    with _flock(partial) as free:
        if free:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _flock(path: Path, *, patience: float = 0.0) -> Iterator[bool]:
    """Holds the lock of a file or folder, if it is free within some seconds: yields whether it is held."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # gone meanwhile, or a folder on Windows
        yield False
        return
    try:
        until = time.monotonic() + patience
        while not (held := _taken(descriptor)) and time.monotonic() < until:
            time.sleep(0.02)
        yield held
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)  # else: this disk has no locks
    return True


@contextmanager
def _one_at_a_time(parent: Path) -> Iterator[None]:
    """Between the renames nobody else renames in this folder. A partial folder is its writer's alone, and locked."""
    if parent.name.endswith(".partial"):
        yield
        return
    with _flock(parent, patience=10.0):
        yield


_LOCK = ".lock"


@contextmanager
def locked(folder: Path, message: str) -> Iterator[None]:
    """This process alone works in `folder`, which is made; another one that does so is a UserError with `message`.

    The lock goes with the process, however it ends. A folder in which nothing but the lock is left goes too.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _LOCK).touch()
    with _flock(folder / _LOCK) as held:
        if not held or not (folder / _LOCK).exists():  # in the second case it was just given up, with the folder
            raise UserError(message)
        try:
            yield
        finally:
            (folder / _LOCK).unlink(missing_ok=True)
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def is_locked(folder: Path) -> bool:
    """Whether another process (or another run of this one) works there."""
    if not (folder / _LOCK).exists():
        return False
    with _flock(folder / _LOCK) as free:
        return not free


def cleared(folder: Path) -> None:
    """Everything in there goes, but for its lock."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _LOCK:
            entry.unlink(missing_ok=True)


_TROUBLES = {
    errno.ENOSPC: "the disk is full. Free some space and run it again",
    errno.EDQUOT: "your quota of the disk is used up. Free some space and run it again",
    errno.EFBIG: "the file would be larger than is allowed here. Choose another place",
    errno.EROFS: "the file system is read-only. Choose another place",
    errno.EACCES: "you may not write there. Choose another place",
    errno.EPERM: "you may not write there. Choose another place",
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one",
    errno.ENOENT: "it has vanished meanwhile. Run it again",
    errno.ENOTDIR: "a part of its path is a file. Choose another place",
    errno.EISDIR: "it is a folder. Choose another name",
    errno.ELOOP: "its links lead in a circle. Choose another place",
    errno.EBUSY: "it is in use, as the root of a disk is. Choose a folder in it",
    errno.EIO: "the disk reports an error. Choose another place",
    errno.EMFILE: "too many files are open. Raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine. Try again later",
    errno.EINVAL: "the name cannot be used here. Choose another one",
}
_SAID = {  # by libraries that are written in C++, and do not say it by number
    "No space left": errno.ENOSPC,
    "PytorchStreamWriter failed": errno.ENOSPC,
    "unexpected pos": errno.ENOSPC,
    "Read-only file system": errno.EROFS,
    "Permission denied": errno.EACCES,
}


def trouble(error: BaseException) -> str | None:
    """What is the matter with the disk, and what to do; None if the error is about something else."""
    if isinstance(error, OSError) and error.errno is not None:
        return _TROUBLES.get(error.errno)
    if isinstance(error, UserError) or not isinstance(error, Exception):
        return None
    if number := re.search(r"\(os error (\d+)\)", str(error)):  # what is written in Rust
        return _TROUBLES.get(int(number[1]))
    return next((_TROUBLES[number] for said, number in _SAID.items() if said in str(error)), None)


@contextmanager
def writing(path: str | os.PathLike[str], more: str = "") -> Iterator[None]:
    """Around whatever writes to `path`: what is the matter with the disk becomes one line; `more` ends it."""
    try:
        yield
    except Exception as error:
        what, name = trouble(error), getattr(error, "filename", None)
        if what is None or (isinstance(name, str | bytes) and not _is_about(os.fsdecode(name), path)):
            raise
        raise UserError(f"Cannot write {path}: {what}.{more and ' '}{more}") from error


def _is_about(name: str, path: str | os.PathLike[str]) -> bool:
    """Whether an error about the file `name` came from writing `path`, and not from something that was read."""
    return Path(os.path.realpath(name)).is_relative_to(real(path).parent)
