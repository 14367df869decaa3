"""Responses that are kept: equal requests are computed once."""

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from lorgnette.types import Json

CACHED_BYTES = 64 << 20


class AnswerCache:
    """Responses that are there, or on their way: equal requests are computed once, whoever sends them."""

    def __init__(self, most_bytes: int = CACHED_BYTES) -> None:
        self.most_bytes = most_bytes
        self.known: OrderedDict[Hashable, bytes] = OrderedDict()
        self.coming: dict[Hashable, asyncio.Task[bytes]] = {}
        self.waiting: Counter[asyncio.Task[bytes]] = Counter()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The response as JSON; made if it is not there, dropped if all who asked have left."""
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
                task.cancel()  # nobody waits for it, unless it is done

    def forget(self, keep: Callable[[Any], bool]) -> None:
        """Drops what `keep` does not want: the responses of a model that is loaded anew."""
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
