"""Signs of life of several processes, in a store that answers, breaks or falls silent."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from lorgnette.looking import pulse
from lorgnette.looking.pulse import Pulse


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(pulse, "BEAT", 0.01)
    monkeypatch.setattr(pulse, "SILENT", 0.3)


class Store:
    """Counters; `silent` stands for a network that no longer delivers anything."""

    def __init__(self):
        self.counters, self.silent, self.gone = {}, threading.Event(), False
        self.asked_by = set()

    def add(self, key, amount):
        self.asked_by.add(threading.current_thread())
        if self.silent.is_set():
            threading.Event().wait(30)
        if self.gone:
            raise RuntimeError("Connection was likely closed")
        self.counters[key] = self.counters.get(key, 0) + amount
        return self.counters[key]


def heard(one, seconds=5.0):
    """What it says of lost processes within that time."""
    until = time.monotonic() + seconds
    while (lost := one.lost()) is None and time.monotonic() < until:
        time.sleep(0.01)
    return None if lost is None else str(lost)


def test_two_that_live_hear_each_other():
    store = Store()
    first, second = Pulse(store, 0, 2), Pulse(store, 1, 2)
    with first.beating(), second.beating():
        assert heard(first, 0.6) is None
        assert heard(second, 0.6) is None


def test_one_that_ends_is_named():
    store = Store()
    first, second = Pulse(store, 0, 2), Pulse(store, 1, 2)
    with first.beating():
        with second.beating():
            assert heard(first, 0.5) is None
        assert "process 2 of 2 has been silent for" in heard(first)


def test_a_store_that_is_gone_is_heard_at_once():
    store = Store()
    one = Pulse(store, 1, 2)
    with one.beating():
        store.gone = True
        assert "Connection was likely closed" in heard(one)


def test_a_store_that_no_longer_answers_holds_nobody_up():
    """As behind a host that lost its power or its network: no connection is closed, and an answer never comes."""
    store = Store()
    one = Pulse(store, 1, 2)
    with one.beating():
        assert one.lost() is None
        store.silent.set()
        start = time.monotonic()
        assert "has not answered for" in heard(one)
        assert time.monotonic() - start < 5
    assert threading.current_thread() not in store.asked_by


def test_one_that_has_not_begun_is_waited_for():
    """It may load a larger model, or read more for its fingerprint."""
    store = Store()
    first, second = Pulse(store, 0, 2), Pulse(store, 1, 2)
    with first.beating():
        assert heard(first, 1.0) is None
        with second.beating():
            assert heard(first, 0.6) is None
        assert "process 2 of 2 has been silent for" in heard(first)


ENDS = """
import os, signal, subprocess, sys, time
from torch.distributed import TCPStore

from lorgnette.cli import _end
from lorgnette.looking import pulse

holds = "import time; from torch.distributed import TCPStore; store = TCPStore('127.0.0.1', 0, is_master=True, " \\
        "wait_for_workers=False); print(store.port, flush=True); time.sleep(60)"
other = subprocess.Popen([sys.executable, "-c", holds], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
store = TCPStore("127.0.0.1", int(other.stdout.readline()), is_master=False, wait_for_workers=False)
pulse.BEAT, pulse.SILENT = 0.05, 0.5
one = pulse.Pulse(store, 1, 2)
with one.beating():
    os.kill(other.pid, signal.SIGSTOP)
    while one.lost() is None:
        time.sleep(0.05)

class Late:
    def __del__(self, kill=os.kill, sleep=time.sleep, pid=other.pid, resume=signal.SIGCONT):
        kill(pid, resume)
        sleep(2)

late = Late()  # when Python ends, the answer comes after all
held = pulse.held_up()
print("held up", held, "pid", other.pid, flush=True)
_end("one line.", 1)
"""


def test_a_command_ends_while_a_thread_waits_for_a_silent_process():
    """Python aborted at its end, with a second line, as the thread was still in C++."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=150, check=False)
    assert done.stdout.startswith("held up True pid "), done.stderr
    os.kill(int(done.stdout.split()[-1]), signal.SIGKILL)
    assert (done.returncode, done.stderr) == (1, "lorgnette: one line.\n")
