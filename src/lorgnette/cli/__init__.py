"""The command line: one short file per command; nothing heavy is imported before a command needs it."""

import contextlib
import os
import signal
import sys
import warnings
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM: what Ctrl-C keeps is kept."""


def main() -> None:
    try:
        _begin()
        from lorgnette.cli.app import app

        app(prog_name="lorgnette")
    except KeyboardInterrupt:  # while Python still reads its libraries; later it is told what was kept
        _end("interrupted.", 130)
    except SystemExit as exit_:
        _end(None, exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None))


def _begin() -> None:
    # Errors of the hub and of transformers come back as ours, in one line; their log lines would only surround it.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # Marian works without it
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows no emoji gets its number
            stream.reconfigure(errors="backslashreplace")
    sys.argv = [_decoded(argument) for argument in sys.argv]
    with contextlib.suppress(ValueError):  # only the main thread may; elsewhere somebody else decides
        signal.signal(signal.SIGTERM, _terminate)


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
        message, status = f"cannot write the output: {error.strerror}.", status or 1
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python, when it ends, does not try again
    if message is not None:
        print("lorgnette:", message, file=sys.stderr)
    raise SystemExit(status)
