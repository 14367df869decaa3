"""The models of the page: loaded when they are first asked for, one at a time, without blocking the page."""

import asyncio
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence

from lorgnette.errors import UserError, near, reason
from lorgnette.serve.work import WorkingThread
from lorgnette.subject import Subject

MOST_LOADED = 2
"""Models in memory: as many as can be compared."""


class Models:
    """Subjects by name; when there is no room for another, the one unused for longest is dropped."""

    def __init__(self, names: Sequence[str], load: Callable[[str], Subject]) -> None:
        if not names:
            raise UserError("No model was given. Name at least one.")
        self.names: tuple[str, ...] = tuple(dict.fromkeys(names))
        self.load = load
        self.ready: OrderedDict[str, Subject] = OrderedDict()
        self.loading: str | None = None
        self.failed: dict[str, str] = {}
        self.on_load: Callable[[str], None] = lambda name: None
        self._coming: dict[str, asyncio.Task[Subject]] = {}
        self._thread = WorkingThread("loading")
        self._one_at_a_time = asyncio.Lock()

    def state(self, name: str) -> str:
        if name in self.ready:
            return "ready"
        return "loading" if name == self.loading else "failed" if name in self.failed else "waiting"

    def known(self, name: str) -> str:
        """The name, if it is a model of the page; the page opens no others."""
        if name not in self.names:
            raise UserError(
                f"The page has no model {name!r}.{near(name, self.names)} It has: {', '.join(self.names)}. "
                "Start it with the models that you want to analyse."
            )
        return name

    async def get(self, name: str) -> Subject:
        """The subject; all who ask for it while it is loaded wait for the same one."""
        if self.known(name) in self.ready:
            self.ready.move_to_end(name)
            return self.ready[name]
        if name not in self._coming:
            self._coming[name] = asyncio.ensure_future(self._loaded(name))
        return await asyncio.shield(self._coming[name])  # a client that disconnects does not cancel the loading

    async def _loaded(self, name: str) -> Subject:
        try:
            async with self._one_at_a_time:
                self.loading = name
                subject = await self._thread.do(lambda: self.load(name))
        except Exception as error:
            if not isinstance(error, UserError):  # perhaps a bug of ours, so show the traceback
                traceback.print_exception(error)
                error = UserError(f"The model {name!r} cannot be opened: {reason(error)}. Choose another model.")
            self.failed[name] = str(error)
            raise error from error.__cause__
        finally:
            self.loading = None
            self._coming.pop(name, None)
        self._put(name, subject)
        return subject

    def _put(self, name: str, subject: Subject) -> None:
        self.failed.pop(name, None)
        while len(self.ready) >= MOST_LOADED:
            self.ready.popitem(last=False)
        self.ready[name] = subject
        self.on_load(name)
