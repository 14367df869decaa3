"""One case: files are written, the command line is called in this process, and what came out is judged."""

import contextlib
import io
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

CPU_SECONDS, WALL_SECONDS = 20.0, 120.0
"""A case that computes longer, or waits longer, hangs."""
LONGEST_LINE = 2000


class Hang(BaseException):
    """Raised by the clock; nothing of ours may catch it."""


@dataclass
class Answer:
    """What the command line did: its exit status, its streams, and the results that `look` gave inside it."""

    status: int | None = None
    out: str = ""
    err: str = ""
    error: str = ""
    """The traceback of what came out uncaught."""
    results: list[Any] = field(default_factory=list)


def nothing_to_say(answer: Answer, folder: Path) -> str | None:
    return None


@dataclass(frozen=True)
class Case:
    """`arguments` are the command line's, "@/" stands for the case's own folder, into which `files` are written."""

    what: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None
    judge: Callable[[Answer, Path], str | None] = nothing_to_say
    """A sentence if numbers changed silently; asked only where the command line gave an answer."""


@dataclass(frozen=True)
class Outcome:
    kind: str
    """right, one line, traceback, hang or silent change."""
    what: str
    details: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Call:
    """A function of ours, called with something that it may not expect.

    A `UserError` must hold one of the words `names`, so that the reader knows which argument is meant.
    """

    what: str
    call: Callable[[], Any]
    names: tuple[str, ...] = ()
    judge: Callable[[Any], str | None] = lambda given: None
    """A sentence if numbers changed silently; asked only where there was an answer."""


def called(case: Call) -> Outcome:
    from lorgnette.errors import UserError

    started = time.monotonic()

    def outcome(kind: str, details: str = "") -> Outcome:
        return Outcome(kind, case.what[:1500], details, time.monotonic() - started)

    try:
        with clocked(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            answer = case.call()
            changed = case.judge(answer)
    except Hang:
        return outcome("hang", traceback.format_exc()[-3000:])
    except UserError as error:
        said = str(error)
        if "\n" in said or len(said) >= LONGEST_LINE:
            return outcome("traceback", f"not one line: {said[:3000]}")
        if case.names and not any(name.casefold() in said.casefold() for name in case.names):
            return outcome("traceback", f"a line that names none of {case.names}: {said}")
        return outcome("one line", said)
    except BaseException:
        return outcome("traceback", traceback.format_exc()[-6000:])
    return outcome("right") if changed is None else outcome("silent change", changed)


def tried(case: "Case | Call", folder: Path) -> Outcome:
    if isinstance(case, Call):
        return called(case)
    started, here = time.monotonic(), os.getcwd()
    for name, content in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if case.prepare is not None:
        case.prepare(folder)
    arguments = [argument.replace("@/", f"{folder}/") for argument in case.arguments]
    described = f"{case.what}: lorgnette {' '.join(map(repr, case.arguments))}"[:1500]
    try:
        kind, details = _kind(case, arguments, folder)
    finally:
        os.chdir(here)
    return Outcome(kind, described, details, time.monotonic() - started)


def _kind(case: Case, arguments: list[str], folder: Path) -> tuple[str, str]:
    try:
        with clocked():
            answer = answered(arguments)
    except Hang:
        return "hang", traceback.format_exc()[-3000:]
    if answer.error:
        return "traceback", answer.error
    if answer.status == 0:
        if "Traceback" in answer.err:
            return "traceback", answer.err
        changed = case.judge(answer, folder)
        return ("right", "") if changed is None else ("silent change", changed)
    if answer.status == 2 and "Traceback" not in answer.err:
        return "one line", answer.err
    lines = [line for line in answer.err.splitlines() if line.strip()]
    if answer.status == 1 and lines and lines[-1].startswith("lorgnette: ") and len(lines[-1]) < LONGEST_LINE:
        said = [line for line in lines if line.startswith("lorgnette: ")]
        if len(said) == 1 and "Traceback" not in answer.err:
            return "one line", answer.err
    return "traceback", f"status {answer.status}, and not one line:\n{answer.err[-3000:]}"


def answered(arguments: list[str]) -> Answer:
    """The command line as a process would run it, but for the process."""
    from lorgnette.cli import main

    answer, before = Answer(), (sys.argv, sys.stdout, sys.stderr)
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    sys.argv, sys.stdout, sys.stderr = ["lorgnette", *arguments], *streams
    try:
        with recorded(answer.results):
            main()
    except SystemExit as end:
        answer.status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Hang:
        raise
    except BaseException:
        answer.error = traceback.format_exc()[-6000:]
    finally:
        sys.argv, sys.stdout, sys.stderr = before
    answer.out, answer.err = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)
    return answer


@contextlib.contextmanager
def recorded(results: list[Any]) -> Iterator[None]:
    """`look` hands its results to the case as well: the tables that are printed are rounded."""
    module = sys.modules["lorgnette.looking.look"]
    look = module.look

    def recording(*given: Any, **options: Any) -> Any:
        found = look(*given, **options)
        results.append(found)
        return found

    module.look = recording
    try:
        yield
    finally:
        module.look = look


@contextlib.contextmanager
def clocked() -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise Hang

    before = {number: signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def numbers(results: Any) -> dict[str, np.ndarray]:
    return {
        f"{name}.{key}": np.asarray(value.values)
        for name, result in results.items()
        for key, value in result.data.variables.items()
    }


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str | None:
    """The first variable that differs, in words; None if all are the same up to the order of summation."""
    if found.keys() != expected.keys():
        return f"other variables: {sorted(found.keys() ^ expected.keys())}"
    for key, value in expected.items():
        if found[key].shape != value.shape:
            return f"{key} has the shape {found[key].shape}, not {value.shape}"
        if value.dtype.kind == "f":
            if not np.allclose(found[key], value, rtol=1e-7, atol=1e-9, equal_nan=True):
                return f"{key} differs by {np.nanmax(np.abs(found[key] - value)):.3g}"
        elif not (found[key] == value).all():
            return f"{key} differs"
    return None
