"""kill −9 at a write: a forked process counts what it does to a folder and ends itself at the k-th.

A point is before an operation of Python on a file (opening for writing, renaming, removing, making a folder), or, torn,
in the middle of a file that was just written. Libraries that are not written in Python tell nobody of their files, so
their writers are torn by hand.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OPERATIONS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Point:
    """Before the operation `number`; `torn`: in the middle of the file that was opened just before it."""

    number: int
    torn: bool = False


class Count:
    """An audit hook. It cannot be taken away again, so it is only for processes that end soon."""

    def __init__(self, folder: Path, stop: Point | None, log: int | None = None) -> None:
        self.folder, self.stop, self.log = str(folder.resolve()), stop, log
        self.number, self.last, self.asleep = 0, None, False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.asleep or not self._is_ours(event, arguments):
            return
        self.happened(event, str(arguments[0]) if event == "open" else None)

    def _is_ours(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open":
            path, _, flags = arguments
            return isinstance(path, str | bytes) and bool(flags & _WRITING) and self._below(path)
        return event in _OPERATIONS and any(self._below(a) for a in arguments[:2] if isinstance(a, str | bytes | Path))

    def _below(self, path: Any) -> bool:
        name = os.fsdecode(path)
        return name.startswith(self.folder) or not os.path.isabs(name)  # the latter: removing a tree, folder by folder

    def happened(self, event: str, opened: str | None = None) -> None:
        self.number += 1
        if self.log is not None:
            os.write(self.log, f"{event}\n".encode())
        if self.stop is not None and self.number == self.stop.number:
            self.asleep = True
            if self.stop.torn and self.last is not None and os.path.isfile(self.last):
                os.truncate(self.last, os.path.getsize(self.last) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        self.last = opened


def _tear_native_writers(count: Count) -> None:
    """After each file that safetensors or torch wrote there are two more points: it is torn, and it is whole."""
    import safetensors.torch
    import torch

    def torn(write: Callable[..., Any], place: int) -> Callable[..., Any]:
        def wrapped(*given: Any, **options: Any) -> Any:
            out = write(*given, **options)
            path = given[place] if len(given) > place else options.get("filename", options.get("f"))
            if isinstance(path, str | Path) and count._below(str(path)):
                count.happened("written", str(path))
                count.happened("closed")
            return out

        return wrapped

    originals = {safetensors.torch.save_file: torn(safetensors.torch.save_file, 1), torch.save: torn(torch.save, 1)}
    for module in list(sys.modules.values()):
        for name in ("save_file", "safe_save_file", "save"):
            original = getattr(module, name, None)
            if callable(original) and original in originals:
                setattr(module, name, originals[original])


def forked(work: Callable[[], None], folder: Path, stop: Point | None = None, log: int | None = None) -> int:
    """How a process that did this work ended: 0, 9 killed at the point, 3 with an error, which is in folder.error."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    try:
        import torch

        torch.set_num_threads(1)  # the parent's threads are not here
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        count = Count(folder, stop, log)
        if stop is not None or log is not None:
            _tear_native_writers(count)
            sys.addaudithook(count)
        work()
        os._exit(0)
    except BaseException:
        Path(f"{folder}.error").write_text(traceback.format_exc())
        os._exit(3)


def points(work: Callable[[], None], folder: Path) -> list[Point]:
    """All points of the work, which is done once in full."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    assert forked(work, folder, log=write) == 0, Path(f"{folder}.error").read_text()
    os.close(write)
    with os.fdopen(read) as stream:
        events = stream.read().split()
    torn = [Point(number + 1, torn=True) for number, event in enumerate(events[:-1], 1) if event in ("open", "written")]
    return sorted([Point(number) for number in range(1, len(events) + 1)] + torn, key=lambda point: point.number)
