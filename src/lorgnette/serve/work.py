"""One thread that works while the page answers: a fair queue before it, and each question worked on once."""

import asyncio
import json
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from lorgnette.types import Json

MOST_WAITING = 200
"""Questions in the queue: four for each of fifty people."""
CACHED_BYTES = 64 << 20
"""Answers that are kept for the next who asks the same."""

Done = TypeVar("Done")


class Busy(Exception):
    """More work is waiting than the page takes."""


class WorkingThread:
    """Runs one piece of work after the other. A daemon: the process may end while it works, since it writes nothing."""

    def __init__(self, name: str) -> None:
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name=f"lorgnette {name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.tasks.get()()

    def do(self, work: Callable[[], Done]) -> "asyncio.Future[Done]":
        """The result, for the event loop that asks."""
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not done.cancelled():
                done.set_result(result) if error is None else done.set_exception(error)

        def task() -> None:
            result, failed = None, None
            try:
                result = work()
            except BaseException as error:
                failed = error
            with suppress(RuntimeError):  # the page was closed meanwhile
                loop.call_soon_threadsafe(settle, result, failed)

        self.tasks.put(task)
        return done


@dataclass(eq=False)
class Job(Generic[Done]):
    """Work in the queue, and where its result goes; the future is cancelled when nobody waits for it any more."""

    work: Callable[[], Done]
    done: "asyncio.Future[Done]"


class Desk:
    """A fair queue: clients take turns, so that one with many questions does not keep the others waiting."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self.thread: WorkingThread = WorkingThread("at work")
        self.lines: OrderedDict[str, deque[Job[Any]]] = OrderedDict()
        self.is_working: bool = False

    @property
    def waiting(self) -> int:
        return sum(len(line) for line in self.lines.values())

    async def do(self, work: Callable[[], Done], *, client: str = "") -> Done:
        """Runs the work when its turn comes; a client who leaves before that costs nothing."""
        job = Job(work, asyncio.get_running_loop().create_future())
        self.lines.setdefault(client, deque()).append(job)
        if self.waiting > self.most:
            self._refuse_last_of_longest()
        self._start_next()
        try:
            return await job.done
        finally:
            self._remove(client, job)

    def _refuse_last_of_longest(self) -> None:
        """When the queue is full, who has most questions in it loses the last of them."""
        client = max(self.lines, key=lambda name: len(self.lines[name]))
        job = self.lines[client][-1]
        self._remove(client, job)
        if not job.done.done():
            job.done.set_exception(Busy(f"{self.most} questions are waiting already. Ask again in a moment."))

    def _remove(self, client: str, job: Job[Any]) -> None:
        line = self.lines.get(client, deque())
        if job in line:
            line.remove(job)
        if not line:
            self.lines.pop(client, None)

    def _start_next(self) -> None:
        if self.is_working or not self.lines:
            return
        client, line = self.lines.popitem(last=False)
        job = line.popleft()
        if line:
            self.lines[client] = line  # behind all others
        self.is_working = True
        self.thread.do(job.work).add_done_callback(lambda result: self._finish(job, result))

    def _finish(self, job: Job[Any], result: "asyncio.Future[Any]") -> None:
        self.is_working = False
        error = result.exception()
        if not job.done.done():
            job.done.set_result(result.result()) if error is None else job.done.set_exception(error)
        self._start_next()


class AnswerCache:
    """Answers that are there, or on their way: the same question is worked on once, whoever asks it."""

    def __init__(self, most_bytes: int = CACHED_BYTES) -> None:
        self.most_bytes = most_bytes
        self.known: OrderedDict[Hashable, bytes] = OrderedDict()
        self.coming: dict[Hashable, asyncio.Task[bytes]] = {}
        self.asking: Counter[asyncio.Task[bytes]] = Counter()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer as JSON; made if it is not there, dropped if all who asked have left."""
        if key in self.known:
            self.known.move_to_end(key)
            return self.known[key]
        task = self.coming.get(key)
        if task is None:
            task = self.coming[key] = asyncio.ensure_future(self._made(key, make))
        self.asking[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self.asking[task] -= 1
            if self.asking[task] == 0:
                del self.asking[task]
                task.cancel()  # nobody waits for it, unless it is done

    def forget(self, keep: Callable[[Any], bool]) -> None:
        """Drops what `keep` does not want: the answers of a model that is loaded anew."""
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
