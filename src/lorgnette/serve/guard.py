"""Access to the page: a check before every request, and security headers on every answer."""

import asyncio
import hmac
import ipaddress
import json
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "lorgnette_token"
LARGEST_BODY = 512 * 1024
BODY_SECONDS = 10.0
"""How long a client may take to send the body of a request."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([1-9][0-9]{0,4}))?")
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
POLICY = "content-security-policy"
_SOURCES = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors"
)
PUBLIC_POLICY = f"{_SOURCES} *"
"""A public page may stand in a frame of another: it has no login and nothing to lose."""
HEADERS = {
    POLICY: f"{_SOURCES} 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether this is a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class Access:
    """Where the page listens, and the token that it asks for: none on loopback, and none for a public page."""

    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    is_public: bool = False
    """Open to everybody under any host name: a demo that has nothing to protect but computing time."""

    @staticmethod
    def at(host: str, *, public: bool = False) -> "Access":
        """A token is made where other machines can reach the page, unless it is meant for everybody."""
        return Access(host, None if public or is_loopback(host) else secrets.token_urlsafe(24), public)

    def names(self, header: str, port: int) -> bool:
        """Whether a Host header is this page's name and port, not a foreign name that points here (DNS rebinding)."""
        match = _HOST.fullmatch(header)
        if match is None or self.is_public:
            return match is not None
        name, given = match[1].lower(), int(match[2] or 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        known = {*_LOCAL, host.lower()}
        if not is_loopback(self.host):
            known.add(socket.gethostname().lower())
        # Bound to all addresses: any of them, but written as numbers, which nobody can point elsewhere.
        is_ours = name in known or (self.host in ("0.0.0.0", "::") and _is_address(name))
        return is_ours and given == port

    def admits(self, headers: dict[str, str]) -> bool:
        """Whether the token is there: as a bearer, or as the cookie that entering set."""
        if self.token is None:
            return True
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if kind.lower() == "bearer" else []
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        given += [cookie.value] if cookie is not None else []
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given)


class Guard:
    """Refuses forbidden requests before the application sees them."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refusal(scope, headers)
        if refused is None:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await _body(receive, headers)
            except TimeoutError:
                refused = 408, f"The request was not complete after {BODY_SECONDS:.0f} seconds. Send it again."
            else:
                if body is not None:
                    await self._answer(scope, body, receive, self._send(send))
                    return
                refused = (
                    413,
                    f"The request is larger than {LARGEST_BODY // 1024} KiB. Send less text or a smaller picture.",
                )
        await _refuse(self._send(send), *refused)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Send the answer; if the client disconnects first, cancel the work."""
        gone = asyncio.Event()
        answering = asyncio.ensure_future(self.app(scope, _replayed(body, gone), send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            gone.set()
            if not answering.done():
                answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering
        finally:
            answering.cancel()
            leaving.cancel()

    def _send(self, send: Send) -> Send:
        """`send` with our security headers added to every answer."""
        headers = HEADERS if not self.access.is_public else {**HEADERS, POLICY: PUBLIC_POLICY}

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in headers.items() if n.encode() not in names]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return add

    def refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        for name in (b"host", b"origin"):
            if sum(given.lower() == name for given, _ in scope["headers"]) > 1:
                return 400, f"The request has more than one {name.decode().capitalize()} header. Send one."
        host, origin, path = headers.get("host", ""), headers.get("origin"), scope["path"]
        if not self.access.names(host, port=scope["server"][1] or 80):
            return 421, f"This page does not answer to the name {host!r}. Open it by the address that it printed."
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "This request comes from another site's page, which may not ask here."
        # The page itself shows no models or texts, and has to load before it can send the token.
        is_open = path == "/" or path.startswith("/static/")
        if not is_open and not self.access.admits(headers):
            return 401, "A token is needed. Open the address that `lorgnette serve` printed, token included."
        return None


async def _body(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """The whole body, or None if it is too large. Bytes are counted, because the Content-Length may be wrong."""
    claimed = headers.get("content-length", "0")
    if not claimed.isdigit() or int(claimed) > LARGEST_BODY:
        return None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


async def _left(receive: Receive) -> None:
    """Ends when the client has left (or has its answer)."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _replayed(body: bytes, gone: asyncio.Event) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            await gone.wait()
            return {"type": "http.disconnect"}
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, status: int, why: str) -> None:
    body = json.dumps({"detail": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] if status in (408, 413) else []  # the rest of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
