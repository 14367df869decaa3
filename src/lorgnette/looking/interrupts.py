"""Ctrl-C and SIGTERM during a look: they wait until the batch that is being analysed is in the states and counted."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAID = b"\nlorgnette: stopping after this batch. Press Ctrl-C again to stop at once.\n"

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def signals_between_batches() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C and SIGTERM back in this context; call what it yields between batches, to let them act.

    A handler of ours notes the signal, and the handler that was there before, the caller's own if there is one, runs at
    the next call, or when the context ends. The same signal once more runs it at once, for a batch that hangs. Nothing
    is held back outside the main thread, where Python runs no handlers, nor if the signal is ignored or ends the
    process without asking Python.
    """
    noted = _Noted()
    stopping = False
    try:
        noted.install()
        yield noted.heed
    except KeyboardInterrupt:
        stopping = True
        raise
    finally:
        noted.remove()
        if stopping:  # the run is already ending: a second signal changes nothing
            with suppress(KeyboardInterrupt):
                noted.heed()
        else:
            noted.heed()


class _Noted:
    """Signals that came and have not acted yet. Handlers run in the main thread only, whichever thread is hit."""

    def __init__(self) -> None:
        self.before: dict[int, Handler] = {}
        self.waiting: dict[int, FrameType | None] = {}
        self.holding = True

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self.before[number] = handler
                signal.signal(number, self.arrived)

    def remove(self) -> None:
        """Restore the earlier handlers, unless somebody has set another one in the meantime."""
        try:
            for number, handler in self.before.items():
                if signal.getsignal(number) == self.arrived:
                    signal.signal(number, handler)
        finally:
            self.holding = False

    def arrived(self, number: int, frame: FrameType | None) -> None:
        if not self.holding or number in self.waiting:
            self.waiting.pop(number, None)
            self.before[number](number, frame)
            return
        self.waiting[number] = frame
        if number == signal.SIGINT:
            with suppress(OSError):  # no print: the signal may have interrupted another print
                if os.isatty(2):
                    os.write(2, _SAID)

    def heed(self) -> None:
        while self.waiting:
            number, frame = self.waiting.popitem()
            self.before[number](number, frame)
