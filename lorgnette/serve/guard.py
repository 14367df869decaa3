"""Who may ask: a check before every request, and the headers of every answer."""

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

COOKIE = "lorgnette_token"
LARGEST_BODY = 64 * 1024
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class Access:
    """Where the page listens, and the token that it asks for; none on loopback."""

    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)

    @staticmethod
    def at(host: str) -> "Access":
        """A token is made where other machines can reach the page."""
        return Access(host, None if is_loopback(host) else secrets.token_urlsafe(24))

    def names(self, header: str) -> bool:
        """Whether a Host header names this page, and is no foreign name that was pointed at us (DNS rebinding)."""
        name = _without_port(header).lower()
        if is_loopback(self.host) or is_loopback(name):
            return is_loopback(name)
        if name in (self.host.lower(), socket.gethostname().lower()):
            return True
        # Bound to all addresses: any of them, but written as numbers, which nobody can point elsewhere.
        return self.host in ("0.0.0.0", "::") and _is_address(name)

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
    """Refuses what may not be answered before the application sees it."""

    def __init__(self, app: Any, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refusal(scope, headers)
        if refused is None:
            body = await _body(receive, headers)
            if body is None:
                refused = 413, f"The request is larger than {LARGEST_BODY // 1024} KiB. Send a shorter text."
            else:
                await self.app(scope, _replayed(body, receive), _with_headers(send))
                return
        await _refuse(send, *refused)

    def refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host, origin, path = headers.get("host", ""), headers.get("origin"), scope["path"]
        if not self.access.names(host):
            return 421, f"This page does not answer to the name {host!r}. Open it by the address that it printed."
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "This request comes from another site's page, which may not ask here."
        # The page itself says nothing of models or texts, and must be there to hand the token over.
        is_open = path == "/" or path.startswith("/static/")
        if not is_open and not self.access.admits(headers):
            return 401, "A token is needed. Open the address that `lorgnette serve` printed, token included."
        return None


async def _body(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """The whole body, or None if it is too large: counted, since what it claims to be need not be so."""
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


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> dict[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    async def add(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in there]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return add


async def _refuse(send: Send, status: int, why: str) -> None:
    body = json.dumps({"detail": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await _with_headers(send)({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[: header.find("]") + 1]
    return header.rsplit(":", 1)[0] if header.count(":") == 1 else header


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
