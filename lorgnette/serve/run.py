"""The page, started: a socket, a browser, and nothing in the log that should not be read."""

import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence

import uvicorn

from lorgnette.errors import UserError
from lorgnette.serve.app import make_app
from lorgnette.serve.guard import Access
from lorgnette.serve.work import Models
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
) -> None:
    """Serves until it is interrupted."""
    access = Access.at(host)
    listening = _listening(host, port)
    address = _address(access, listening)
    # The part behind # is never sent, so the token is in no request line; there is no access log either.
    print(f"Lorgnette is at {address}\nCtrl-C ends it.", file=sys.stderr, flush=True)
    app = make_app(Models(names, load), access, corpus)
    server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning", lifespan="on"))
    if browser:
        threading.Timer(0.8, webbrowser.open, [address]).start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()


def _listening(host: str, port: int) -> socket.socket:
    made = None
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
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
