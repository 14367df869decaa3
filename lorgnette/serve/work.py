"""Models, loaded one after the other and looked at one text at a time, while the page stays free to answer."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lorgnette.errors import UserError, near
from lorgnette.subject import Subject

KEPT = 2
"""Models in memory: as many as can be compared."""
MOST_WAITING = 4

Done = TypeVar("Done")


class Busy(Exception):
    """More work is waiting than the page takes."""


class Models:
    """Subjects by name; each is loaded when it is first asked for, and the one not asked for longest goes first."""

    def __init__(self, names: Sequence[str], load: Callable[[str], Subject]) -> None:
        if not names:
            raise UserError("No model was given. Name at least one.")
        self.names = tuple(dict.fromkeys(names))
        self.load = load
        self.ready: OrderedDict[str, Subject] = OrderedDict()
        self.loading: str | None = None
        self.failed: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()

    def state(self, name: str) -> str:
        if name in self.ready:
            return "ready"
        return "loading" if name == self.loading else "failed" if name in self.failed else "waiting"

    async def get(self, name: str) -> Subject:
        """The subject, loaded in a thread of its own if it is not there yet."""
        if name not in self.names:
            raise UserError(
                f"The page has no model {name!r}.{near(name, self.names)} It has: {', '.join(self.names)}. "
                "Start it with the models that you want to look at."
            )
        async with self._one_at_a_time:
            if name not in self.ready:
                await self._loaded(name)
        self.ready.move_to_end(name)
        return self.ready[name]

    async def _loaded(self, name: str) -> None:
        self.loading = name
        self.failed.pop(name, None)
        try:
            subject = await asyncio.to_thread(self.load, name)
        except UserError as error:
            self.failed[name] = str(error)
            raise
        finally:
            self.loading = None
        while len(self.ready) >= KEPT:
            self.ready.popitem(last=False)
        self.ready[name] = subject


class Desk:
    """One thread that works, and a short queue before it."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lorgnette")
        self.waiting = 0

    async def do(self, work: Callable[..., Done], *arguments: Any) -> Done:
        """Runs the work when its turn comes; refuses it if too much is waiting."""
        if self.waiting >= MOST_WAITING:
            raise Busy(f"{self.waiting} requests are being worked on already. Wait a moment and ask again.")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, work, *arguments)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        self.thread.shutdown(wait=False, cancel_futures=True)
