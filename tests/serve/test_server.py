"""The server as a process: slow clients are dropped, and Ctrl-C ends it whatever is going on."""

import asyncio
import signal
import socket
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
from processes import Forked
from tiny import classifier

from lorgnette.serve import Models, make_app
from lorgnette.serve.server import ANSWER_SECONDS, REQUEST_SECONDS, Server

SUBJECTS = {"tiny": classifier()}
HEAD = b"POST /api/look HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Type: application/json\r\n"
GET = b"GET /api/state HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n"


def addressed(request: bytes, port: int) -> bytes:
    return request.replace(b"PORT", b"%d" % port)


@contextmanager
def served(proxy=None):
    """The page on a free port, in a thread; gives the server and the port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = Server(make_app(Models(["tiny"], SUBJECTS.__getitem__)), proxy)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server, port
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{", GET + b"GET /api/st"],
    ids=["nothing", "half a line", "no end of the head", "half a body", "half a second request"],
)
def test_a_client_that_does_not_finish_its_request_is_dropped(sent):
    with served() as (server, port), socket.create_connection(("127.0.0.1", port)) as slow:
        clock = Clock(server)
        slow.settimeout(5)
        if sent.startswith(GET):
            slow.sendall(addressed(GET, port))
            while not slow.recv(1 << 16).endswith(b"}"):
                pass
        slow.sendall(addressed(sent.removeprefix(GET), port))
        clock.see_everything()
        clock.now += REQUEST_SECONDS - 1
        clock.see_everything()
        assert server.server_state.connections
        clock.now += 2
        assert _is_closed(slow)
        assert httpx.get(f"http://127.0.0.1:{port}/api/state").status_code == 200


def test_a_client_that_does_not_read_is_dropped():
    with served() as (server, port), socket.socket() as slow:
        clock = Clock(server)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        slow.sendall(addressed(b"GET /openapi.json HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n" * 400, port))
        while not any(c.transport.get_write_buffer_size() for c in list(server.server_state.connections)):
            time.sleep(0.01)
        clock.see_everything()
        clock.now += ANSWER_SECONDS + 1
        clock.see_everything()
        assert not server.server_state.connections


@pytest.mark.parametrize(
    ("proxy", "counted"),
    [(None, "127.0.0.1"), ("10.0.0.0/8", "127.0.0.1"), ("127.0.0.1", "203.0.113.5"), ("127.0.0.0/8", "203.0.113.5")],
)
def test_forwarded_addresses_count_only_from_the_proxy_that_was_named(monkeypatch, proxy, counted):
    """The proxy adds the last address; what stands before it was written by the client."""
    seen = []
    monkeypatch.setattr("lorgnette.serve.work.Desk.place", lambda _, address: seen.append(address) or nullcontext())
    with served(proxy) as (_, port):
        httpx.post(
            f"http://127.0.0.1:{port}/api/look",
            json={"model": "tiny", "text": "the cat"},
            headers={"X-Forwarded-For": "198.51.100.9, 203.0.113.5"},
        ).raise_for_status()
    assert seen == [counted]


class Clock:
    """The server's clock, in the test's hands."""

    def __init__(self, server) -> None:
        self.now, self.ticks = 0.0, 0
        server.clock = self

    def __call__(self) -> float:
        self.ticks += 1
        return self.now

    def see_everything(self) -> None:
        """Waits until the server has looked at its connections, and what follows has happened."""
        ticks = self.ticks
        while self.ticks < ticks + 4:
            time.sleep(0.01)


def _is_closed(client) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


PAGE = """
import time
from tiny import classifier
from lorgnette.serve import app
from lorgnette.serve.run import run
looked = app._looked
def slow(*given):
    time.sleep(900)
    return looked(*given)
app._looked = slow
def load(name):
    time.sleep(900 if name == "slow" else 0)
    return classifier()
run(["tiny", "slow"], load, port=0, browser=False)
"""


def test_ctrl_c_ends_it_while_requests_are_running():
    """A look at work, another in the queue, a model being loaded, and a request that is never finished."""
    process = Forked(["-c", PAGE], cwd=Path(__file__).parents[1])
    clients = []
    try:
        while not (said := process.said("stderr")).endswith("\n"):
            assert process.process.is_alive(), said
            time.sleep(0.05)
        port = int(said.splitlines()[0].rstrip("/").rpartition(":")[2])
        for model in ("tiny", "tiny", "slow", None):
            client = socket.create_connection(("127.0.0.1", port))
            body = b'{"model": "%s", "text": "the cat %d"}' % ((model or "").encode(), len(clients))
            head = b"Content-Length: %d\r\n\r\n" % len(body)
            client.sendall(addressed(HEAD + head + body if model else HEAD, port))
            clients.append(client)
        while "loading" not in httpx.get(f"http://127.0.0.1:{port}/api/state").text:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        done = process.wait(120)  # the work that is under way would take fifteen minutes
        assert "Traceback" not in done.stderr
        assert done.returncode == 0
    finally:
        for client in clients:
            client.close()
        process.process.kill()
