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


class Pulse:
    """The signs of life of all processes of a run: counters in the store in which they met.

    A thread counts, so that a long batch is no silence. Others are listened to between batches. If the store itself is
    gone, so is the process that holds it.
    """

    def __init__(self, store: "Store", rank: int, world: int) -> None:
        self.store, self.rank, self.world = store, rank, world
        self._heard: dict[int, tuple[int, float]] = {}
        self._listened = 0.0

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Count until the block ends."""
        over = threading.Event()

        def beat() -> None:
            try:
                while True:
                    self.store.add(self._counter(self.rank), 1)
                    if over.wait(BEAT):
                        return
            except RuntimeError:  # the store is gone, which whoever listens will find
                return

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(BEAT)

    def begin(self) -> None:
        """Listen from now on: until here, others may have been silent, as they had not come so far."""
        self._heard, self._listened = {}, 0.0

    def lost(self) -> UserError | None:
        """What to say if another process is gone."""
        now = time.monotonic()
        if now - self._listened < BEAT:
            return None
        self._listened = now
        for rank in range(self.world):
            try:
                count = int(self.store.add(self._counter(rank), 0))
            except RuntimeError as error:
                return process_ended(reason(error))
            known, since = self._heard.get(rank, (None, now))
            self._heard[rank] = (count, now if count != known else since)
            if rank != self.rank and now - self._heard[rank][1] > SILENT:
                return process_ended(f"process {rank + 1} of {self.world} has been silent for {SILENT:.0f} s")
        return None

    @staticmethod
    def _counter(rank: int) -> str:
        return f"lorgnette/pulse/{rank}"
