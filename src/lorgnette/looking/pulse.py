"""Processes that tell each other that they are alive, so that none works on for hours beside one that is gone."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lorgnette.errors import UserError, reason
from lorgnette.lens.states import process_ended

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

BEAT = 3.0
"""Seconds between two signs of life."""
SILENT = 40.0
"""Seconds without one after which a process counts as lost: with a batch of ten seconds, within a minute."""
WAITING = "lorgnette: waits for other processes"
"""The name of every thread that asks another process something, and may wait for its answer in C++."""


def held_up() -> bool:
    """Whether a thread still waits for a process that is lost. Python cannot end it, and would abort at its own end."""
    return any(thread.name == WAITING for thread in threading.enumerate())


class Pulse:
    """The signs of life of all processes of a run: counters in the store in which they met.

    A thread counts and reads the counters of the others. So a long batch is no silence, and a store that no longer
    answers, as behind a host that lost its power or its network, holds nobody up. Silence is measured in the time in
    which this process itself runs: those that were stopped together (Ctrl-Z) do not take each other for lost. If the
    store is gone, so is the process that holds it.
    """

    def __init__(self, store: "Store", rank: int, world: int, meeting: int = 0) -> None:
        """`meeting`: how often the processes have met before; their counters begin anew each time."""
        self.store, self.rank, self.world, self.meeting = store, rank, world, meeting
        self._counts: dict[int, int] = {}
        self._silence: dict[int, float] = {}
        """Seconds in which the counter of each process has stood still."""
        self._asked: float | None = None
        """Since when an answer of the store is awaited."""
        self._gone: str | None = None
        """What the store said at its end."""

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Count and listen until the block ends."""
        over = threading.Event()

        def beat() -> None:
            passed = 0.0
            try:
                while True:
                    self._count(passed)
                    before = time.monotonic()
                    if over.wait(BEAT):
                        return
                    passed = min(time.monotonic() - before, 2 * BEAT)
            except RuntimeError as error:
                self._gone = reason(error)

        thread = threading.Thread(target=beat, name=WAITING, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(BEAT)

    def _count(self, passed: float) -> None:
        """Give a sign of life, and read those of the others; `passed` seconds after they were read last."""
        for rank in range(self.world):
            self._asked = time.monotonic()
            count = int(self.store.add(f"lorgnette/pulse/{self.meeting}/{rank}", int(rank == self.rank)))
            self._asked = None
            still = 0 < count == self._counts.get(rank)  # 0: it has not come so far
            self._counts[rank] = count
            self._silence[rank] = self._silence.get(rank, 0.0) + passed if still else 0.0

    def lost(self) -> UserError | None:
        """What to say if another process is gone."""
        if self._gone is not None:
            return process_ended(self._gone)
        asked = self._asked
        if asked is not None and time.monotonic() - asked > SILENT:
            return process_ended(
                f"the first of them, through which they hear of each other, has not answered for {SILENT:.0f} s"
            )
        for rank, seconds in list(self._silence.items()):
            if seconds > SILENT:
                return process_ended(f"process {rank + 1} of {self.world} has been silent for {SILENT:.0f} s")
        return None
