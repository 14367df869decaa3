"""The cells of a grid of runs: each leaves one JSON file, is never run twice, and does not care where the others run.

So an interrupted grid goes on where it was, and cells that another machine computed can be copied into the folder.
`gather` puts the files into one table beside the folder (`frame.rows`), and from then on the cells are read from there.
With several jobs the cells run in as many processes, each with one thread, also all on one GPU. Nothing is imported
here that a machine which only trains may lack: neither typer nor pandas nor altair.
"""

import json
import os
import re
import sys
import time
import traceback
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.files import sweep, write_whole
from lorgnette.results.provenance import versions
from reproductions.frame import rows

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,=+-]*")
_FAILED = ".failed.json"


@dataclass(frozen=True)
class Cell:
    """One run: `function` is "module:name", called with `arguments`, which are plain values.

    It returns an xarray.Dataset, or plain values in dictionaries and lists. `labels` say where in the grid it lies
    (model, seed, λ …): by them a page finds it. What a cell *is*, are its arguments: functions may move. A page does
    not miss an `optional` cell: one that is measured only where its model can be had.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False

    def record(self) -> dict[str, Any]:
        return {"function": self.function, "arguments": json.loads(json.dumps(dict(self.arguments), allow_nan=False))}

    def run(self) -> Any:
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)(**self.arguments)


class Cells:
    """The finished cells of a folder, and the way to finish more.

    A file whose cell had other arguments than now does not count: it is run again. `local` arguments (where the data
    lie, where scratch files go) are passed to every cell and are not part of what it is.
    """

    def __init__(self, folder: str | Path, *, local: Mapping[str, Any] | None = None, device: str | None = None):
        self.folder = Path(folder)
        self.table = self.folder.with_name(f"{self.folder.name}.csv")
        self.local, self.device = dict(local or {}), device
        self._pool: ProcessPoolExecutor | None = None
        self._kept = False

    def __enter__(self) -> "Cells":
        """Keeps the worker processes from one `run` to the next."""
        self._kept = True
        return self

    def __exit__(self, *_: object) -> None:
        self._kept = False
        self._close()

    def done(self, cells: Mapping[str, Cell]) -> dict[str, Any]:
        """The results of those cells that are finished, by key."""
        return {key: _result(document) for key, document in self.documents(cells).items()}

    def documents(self, cells: Mapping[str, Cell]) -> dict[str, dict[str, Any]]:
        """What is kept of those cells that are finished: cell, result or dataset, seconds, versions.

        A file counts before the row of the table, since it is younger.
        """
        found = {}
        for key, cell in cells.items():
            arguments = cell.record()["arguments"]
            for document in (self._read(self._file(key)), self._gathered.get(key)):
                if document is not None and document["cell"]["arguments"] == arguments:
                    found[key] = document
                    break
        return found

    def gather(self, cells: Mapping[str, Cell]) -> None:
        """Moves the files of finished cells into the table; rows of other cells stay there."""
        found = {key: kept for key, kept in self.documents(cells).items() if self._file(key).is_file()}
        if found:
            rows.write(self.table, {**self._gathered, **found})
            self.__dict__.pop("_gathered", None)
            for key in found:
                self._file(key).unlink()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    @cached_property
    def _gathered(self) -> dict[str, rows.Document]:
        return rows.read(self.table)

    def failures(self, cells: Mapping[str, Cell]) -> dict[str, str]:
        """The last line of what went wrong, for those that failed and have not succeeded since."""
        files = {key: self._read(self._failed(key)) for key in cells}
        return {key: kept["error"].strip().splitlines()[-1] for key, kept in files.items() if kept is not None}

    def run(
        self, cells: Mapping[str, Cell], *, jobs: int = 1, until: float | None = None, name: str = "cells"
    ) -> dict[str, Any]:
        """Runs what is not done yet, in the order given, and returns all that is done then.

        A cell that fails is recorded beside the others and does not stop them; it is tried again next time. After
        `until` (by time.monotonic) no new cell is started.
        """
        sweep(self.folder)
        done = self.done(cells)
        waiting = deque(key for key in cells if key not in done)
        progress = _Progress(name, len(cells), len(done))
        try:
            if jobs > 1 and len(waiting) > 1:
                self._side_by_side(cells, waiting, jobs, until, progress)
            else:
                with _environment(self.device):
                    while waiting and not _over(until):
                        key = waiting.popleft()
                        self._keep(key, cells[key], _attempt(cells[key], self.local), progress)
        finally:
            if not self._kept:
                self._close()
        if waiting:
            print(f"{name}: the time is over; {len(waiting)} cells were not started.", file=sys.stderr, flush=True)
        return self.done(cells)

    def _side_by_side(
        self, cells: Mapping[str, Cell], waiting: deque[str], jobs: int, until: float | None, progress: "_Progress"
    ) -> None:
        running: dict[Future[dict[str, Any]], str] = {}
        while running or (waiting and not _over(until)):
            while waiting and len(running) < jobs and not _over(until):
                try:
                    future = self._workers(jobs).submit(_attempt, cells[waiting[0]], self.local)
                except BrokenProcessPool:  # a process died since the last look: the cells that ran are noted below
                    if not running:
                        self._close()
                    break
                running[future] = waiting.popleft()
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(isinstance(future.exception(), BrokenProcessPool) for future in finished):
                # The cell that killed its process cannot be told from those that ran beside it: all are noted.
                finished, _ = wait(running)
                self._close()
            for future in finished:
                key = running.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    outcome = {"error": f"a worker process died: {error}", "seconds": 0.0}
                else:
                    outcome = future.result()
                self._keep(key, cells[key], outcome, progress)

    def _workers(self, jobs: int) -> ProcessPoolExecutor:
        if self._pool is None:
            # A fresh interpreter each: a forked one could not use the GPU, nor any library with threads.
            self._pool = ProcessPoolExecutor(
                jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(self.device,)
            )
        return self._pool

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _keep(self, key: str, cell: Cell, outcome: dict[str, Any], progress: "_Progress") -> None:
        record = {"cell": cell.record(), **outcome}
        failed = "error" in outcome
        write_whole(
            self._failed(key) if failed else self._file(key),
            json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n",
        )
        if not failed:
            self._failed(key).unlink(missing_ok=True)
        progress.tell(key, outcome)

    def _file(self, key: str) -> Path:
        if not _KEY.fullmatch(key) or key.endswith(".failed"):
            raise ValueError(f"{key!r} is no name for a cell: letters, digits and . _ , = + - only.")
        return self.folder / f"{key}.json"

    def _failed(self, key: str) -> Path:
        return self._file(key).with_name(key + _FAILED)

    @staticmethod
    def _read(path: Path) -> dict[str, Any] | None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path} is no finished cell ({error}): delete it, and it will be run again.") from error


class _Progress:
    """A line on stderr for every cell."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done, self.started = name, total, done, time.monotonic()
        if done:
            print(f"{name}: {done} of {total} cells were there already.", file=sys.stderr, flush=True)

    def tell(self, key: str, outcome: Mapping[str, Any]) -> None:
        self.done += "error" not in outcome
        elapsed = time.monotonic() - self.started
        said = f"FAILED: {outcome['error'].strip().splitlines()[-1]}" if "error" in outcome else "done"
        print(
            f"{self.name}: {self.done}/{self.total} {key} {said}, {outcome['seconds']:.1f} s ({elapsed:.0f} s in all)",
            file=sys.stderr,
            flush=True,
        )


def _result(document: Mapping[str, Any]) -> Any:
    if "dataset" not in document:
        return document["result"]
    from lorgnette.results.schema import decode

    return decode(document["dataset"])


def _over(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def _begin(device: str | None) -> None:
    """In a worker, before anything heavy is imported: one thread each, and no GPU if none is wanted."""
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


class _environment:
    """What `_begin` does to a worker's device, for cells that run in this process, and undone."""

    def __init__(self, device: str | None) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.before = os.environ.get("CUDA_VISIBLE_DEVICES")
        if self.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def __exit__(self, *_: object) -> None:
        if self.device != "cpu":
            return
        if self.before is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.before


def _attempt(cell: Cell, local: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a cell, or the traceback; also what cannot be written as JSON is a failure."""
    started = time.monotonic()
    try:
        result = Cell(cell.function, {**cell.arguments, **local}).run()
        outcome: dict[str, Any] = {**_written(result), "versions": dict(versions())}
    except Exception:
        outcome = {"error": traceback.format_exc()}
    return {**outcome, "seconds": round(time.monotonic() - started, 3)}


def _written(result: Any) -> dict[str, Any]:
    """A result as JSON: labelled arrays under "dataset", plain values under "result"."""
    if not hasattr(result, "data_vars"):
        return {"result": json.loads(json.dumps(result, allow_nan=False))}
    from lorgnette.results.schema import encode

    return {"dataset": encode(result)}
