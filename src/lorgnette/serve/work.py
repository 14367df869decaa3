"""One thread that works while the page responds, and the queue before it."""

import asyncio
import ipaddress
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from lorgnette.types import Json

MOST_WAITING = 20
"""Requests that one address may have waiting. A page has one or two; a classroom shares an address."""

Done = TypeVar("Done")


class Busy(Exception):
    """Raised when an address already has the most requests waiting that it may have."""


class WorkingThread:
    """Runs one piece of work after the other. A daemon: the process may end while it works, since it writes nothing."""

    def __init__(self, name: str) -> None:
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name=f"lorgnette {name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.tasks.get()()

    def do(self, work: Callable[[], Done]) -> "asyncio.Future[Done]":
        """The result, as a future of the running event loop."""
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def task() -> None:
            settle: Callable[[Any], None] = done.set_result
            try:
                result: Any = work()
            except BaseException as error:
                result, settle = error, done.set_exception
            with suppress(RuntimeError):  # the page was closed meanwhile
                loop.call_soon_threadsafe(lambda: None if done.cancelled() else settle(result))

        self.tasks.put(task)
        return done


class Desk:
    """Works on one request at a time, first come, first served. An address that has `most` waiting gets no more."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self.thread: WorkingThread = WorkingThread("at work")
        self.lock: asyncio.Lock = asyncio.Lock()
        self.waiting: Counter[str] = Counter()

    @contextmanager
    def place(self, address: str) -> Iterator[None]:
        """Counts a request until it is answered; refuses it if too many of this address are waiting already."""
        who = sender(address)
        if self.waiting[who] >= self.most:
            raise Busy(f"{self.most} requests from your address are waiting already. Try again in a moment.")
        self.waiting[who] += 1
        try:
            yield
        finally:
            self.waiting[who] -= 1
            self.waiting += Counter()  # drops the zeros

    async def do(self, work: Callable[[], Done]) -> Done:
        """Runs the work when its turn comes. A client that leaves before that costs nothing."""
        await self.lock.acquire()
        running = self.thread.do(work)
        running.add_done_callback(lambda _: self.lock.release())  # work that has begun is not interrupted
        return await asyncio.shield(running)


def sender(address: str) -> str:
    """Who an address is counted as: an IPv6 user owns a /64 network, not one address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return str(ip if ip.version == 4 else ipaddress.ip_network((ip, 64), strict=False))


CACHED_BYTES = 64 << 20


class AnswerCache:
    """Caches responses, and shares those in progress: equal requests are computed once, whoever sends them."""

    def __init__(self, most_bytes: int = CACHED_BYTES) -> None:
        self.most_bytes = most_bytes
        self.known: OrderedDict[Hashable, bytes] = OrderedDict()
        self.coming: dict[Hashable, asyncio.Task[bytes]] = {}
        self.waiting: Counter[asyncio.Task[bytes]] = Counter()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The response as JSON, computed if it is not cached, and cancelled if all clients that wait for it leave."""
        if key in self.known:
            self.known.move_to_end(key)
            return self.known[key]
        task = self.coming.get(key)
        if task is None:
            task = self.coming[key] = asyncio.ensure_future(self._made(key, make))
        self.waiting[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self.waiting[task] -= 1
            if self.waiting[task] == 0:
                del self.waiting[task]
                task.cancel()  # nobody waits for it; a finished task ignores this

    def forget(self, keep: Callable[[Any], bool]) -> None:
        """Drop the responses whose key `keep` rejects, such as those of a model that is loaded again."""
        for key in [key for key in self.known if not keep(key)]:
            del self.known[key]

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        try:
            answer = await make()
        finally:
            self.coming.pop(key, None)
        self.known[key] = answer
        while len(self.known) > 1 and sum(map(len, self.known.values())) > self.most_bytes:
            self.known.popitem(last=False)
        return answer


def as_json(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
