"""The command line: one short file per command; nothing heavy is imported before a command needs it."""

import contextlib
import io
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM: what Ctrl-C keeps is kept."""


def main() -> None:
    try:
        _begin()
        from lorgnette.cli.app import app

        app(prog_name="lorgnette")
    except KeyboardInterrupt as interrupt:  # while Python still reads its libraries; later it is told what was kept
        _end("interrupted.", 143 if isinstance(interrupt, Terminated) else 130)
    except SystemExit as exit_:
        _end(None, exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None))


def _begin() -> None:
    # Errors of the hub and of transformers come back as ours, in one line; their log lines would only surround it.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # So do those of torch where another process is lost, which it would show with twenty frames of C++.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # Marian works without it
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller (>&-); a file that is opened later must not get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no emoji gets its number
            if stream is getattr(sys, f"__{name}__"):
                setattr(sys, name, _outlet(stream, number))
    sys.argv = [_decoded(argument) for argument in sys.argv]
    with contextlib.suppress(ValueError):  # only the main thread may; elsewhere somebody else decides
        signal.signal(signal.SIGTERM, _terminate)


class _Outlet(io.FileIO):
    """A standard stream whose reader may go (`look … | head -4`): what comes after that goes nowhere, and the command
    still writes its files."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


def _outlet(stream: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    """The same stream, whose reader may close it."""
    stream.flush()
    raw = io.BufferedWriter(_Outlet(number, "w", closefd=False))
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=stream.line_buffering,
                            write_through=stream.write_through)  # fmt: skip


def _decoded(argument: str) -> str:
    """An argument as UTF-8, also where the locale says that text is ASCII."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return argument


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _end(message: str | None, status: int) -> None:
    """Ends; what could not be written to the standard output (a full disk) is an error too, and said in one line."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if status == 0:  # else one line has been said already
            message, status = f"cannot write the output: {error.strerror}.", 1
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python, when it ends, does not try again
    if message is not None:
        print("lorgnette:", message, file=sys.stderr)
    pulse = sys.modules.get("lorgnette.looking.pulse")
    if pulse is not None and pulse.held_up():  # Python would abort at its end while that thread is in C++
        sys.stderr.flush()
        os._exit(status)
    raise SystemExit(status)
