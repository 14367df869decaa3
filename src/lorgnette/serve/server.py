"""Uvicorn with time limits: slow clients are dropped, and Ctrl-C ends the server at once."""

import time
from collections.abc import Callable
from socket import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""How long a client may take to send a request."""
ANSWER_SECONDS = 60.0
"""How long a client may take to read an answer."""
MOST_CONNECTIONS = 1000


class Server(uvicorn.Server):
    """A server for `app` that logs no request.

    `proxy` is the address or network of a proxy whose `X-Forwarded-For` is believed; without it, nobody's is.
    """

    def __init__(self, app: ASGIApp, proxy: str | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                access_log=False,
                log_level="error",
                lifespan="off",
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=2,
                proxy_headers=proxy is not None,
                forwarded_allow_ips=proxy or "",
            )
        )
        self.clock: Callable[[], float] = time.monotonic
        self._since: dict[tuple[H11Protocol, object, bool], float] = {}

    async def on_tick(self, counter: int) -> bool:
        self.drop_slow_clients(self.clock())
        return await super().on_tick(counter)

    def drop_slow_clients(self, now: float) -> None:
        """Ends connections that have waited for the client too long: one request or one answer at a time."""
        since = {}
        for connection in self.server_state.connections:
            for is_answer, awaited in enumerate((_request_awaited(connection), _answer_unread(connection))):
                if awaited:
                    key = (connection, connection.cycle, bool(is_answer))
                    since[key] = self._since.get(key, now)
        self._since = since
        for (connection, _, is_answer), start in since.items():
            if now - start > (ANSWER_SECONDS if is_answer else REQUEST_SECONDS):
                connection.transport.abort()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # Ctrl-C does not wait for answers that nobody will read
        await super().shutdown(sockets)


def _request_awaited(connection: H11Protocol) -> bool:
    """Whether a request is begun but not complete: no byte of it yet, some of its head, or some of its body."""
    cycle = connection.cycle
    if cycle is None:
        return True
    if cycle.response_complete:  # idle connections are closed by uvicorn
        return connection.timeout_keep_alive_task is None
    return bool(cycle.more_body)


def _answer_unread(connection: H11Protocol) -> bool:
    return connection.transport.get_write_buffer_size() > 0
