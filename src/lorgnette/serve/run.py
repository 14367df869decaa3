"""Start the page: open the socket and the browser, and keep what users type out of the log."""

import ipaddress
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import replace

from lorgnette.errors import UserError
from lorgnette.serve.app import PUBLIC, Limits, make_app
from lorgnette.serve.guard import Access
from lorgnette.serve.models import Models
from lorgnette.serve.server import Server
from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus


def run(
    names: Sequence[str],
    load: Callable[[str], Subject],
    *,
    corpus: Corpus | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    browser: bool = True,
    public: bool = False,
    truncate: bool = False,
    proxy: str | None = None,
) -> None:
    """Serves until it is interrupted."""
    if proxy is not None:
        _check_network(proxy)
    access = Access.at(host, public=public)
    models = Models(names, load)
    if public:
        _refuse_many(names)
        models.ready[names[0]] = load(names[0])  # whoever starts the page sees the error, not the first visitor
    listening = _listening(host, port)
    address = _address(access, listening)
    # The part behind # is never sent, so the token is in no request line; there is no access log either.
    print(f"Lorgnette is at {address}\nCtrl-C ends it.", file=sys.stderr, flush=True)
    limits = replace(PUBLIC if public else Limits(), truncate=truncate)
    server = Server(make_app(models, access, corpus, limits), proxy)
    if browser:
        opening = threading.Timer(0.8, webbrowser.open, [address])
        opening.daemon = True
        opening.start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()


def _refuse_many(names: Sequence[str]) -> None:
    if len(names) != 1:
        raise UserError(f"A public page has one model; got {len(names)}. Name one, or leave --public out.")


def _check_network(proxy: str) -> None:
    try:
        ipaddress.ip_network(proxy)
    except ValueError as error:
        raise UserError(
            f"--proxy {proxy!r} is not an address or a network ({error}). Give the proxy's own, such as 10.0.0.7 or "
            "10.0.0.0/8."
        ) from error


def _listening(host: str, port: int) -> socket.socket:
    made = None
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen()  # a browser that connects before the server runs waits instead of failing
    except OSError as error:
        if made is not None:
            made.close()
        raise UserError(
            f"Cannot listen at {host}:{port} ({error.strerror or error}). Choose another --port, or 0 for any."
        ) from error
    return made


def _address(access: Access, listening: socket.socket) -> str:
    name = f"[{access.host}]" if ":" in access.host else access.host
    if access.host in ("0.0.0.0", "::"):
        name = socket.gethostname()
    token = "" if access.token is None else f"#enter={access.token}"
    return f"http://{name}:{listening.getsockname()[1]}/{token}"
