"""A look that is stopped at any line of its loop and resumed gives the numbers and counts of one that was not."""

import os
import signal
import sys
import threading
import time
from importlib import import_module

import pytest
import torch
from tiny import bert

from lorgnette.lens.base import Lens
from lorgnette.lens.parts import Waiting
from lorgnette.looking.interrupts import SIGNALS, signals_between_batches
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.texts import TokenizedTexts

LOOP = import_module("lorgnette.looking.corpus_pass")
FILES = tuple(f"looking/{name}.py" for name in ("corpus_pass", "passes", "driver", "interrupts"))
FILES += ("lens/base.py", "lens/states.py", "lens/parts.py")
TEXTS = ["the cat sat on the mat", "the dog sat"]
SUBJECT = bert()


class Lengths(Lens):
    """Sums of every kind that a lens may have, of the tokens alone: the model is not run, and a look takes no time."""

    name, reads = "lengths", frozenset({"tokens", "cpu"})

    def allocate(self, subject):
        self.waiting = Waiting(self, self._take)
        self.sums("now", 1)
        self.sums("later", 1, in_place=False)
        self.state("each", torch.zeros(0), "cat")

    def finish(self, batch, outputs):
        tokens = batch.source.mask.sum().double().view(1)
        self.now += tokens
        self.waiting.add(tokens)
        self.each = torch.cat([self.each, tokens.float()])

    def _take(self, waiting):
        self.later = self.later + sum(waiting)

    def compute(self):
        raise NotImplementedError("the test reads the states")


def looked(out, lens=None, *, resume=False, batch_tokens=1):
    """The states of two lenses, and the counts, after two batches."""
    lenses = [lens or Lengths(), Lengths()]
    for each in lenses:
        each.bind(SUBJECT)
    texts = TokenizedTexts(SUBJECT, TEXTS)
    setting = LOOP.Setting(batch_tokens, progress=False, out=out, resume=resume, weights="", ranks=ProcessRank())
    counts, *_ = LOOP.passed(texts, lenses, setting)
    return [{name: state.tolist() for name, state in each.states.tensors().items()} for each in lenses], counts


class AtLine:
    """Acts at the n-th line that the loop executes in our files; without n, notes when each of them ran last."""

    def __init__(self, act=None, at=0):
        self.act, self.at, self.lines, self.loop = act, at, 0, None
        self.last = {}

    def __call__(self, frame, event, argument):
        if frame.f_code is LOOP._through.__code__:
            self.loop = frame
        ours = frame.f_code.co_filename.endswith(FILES)
        return self.line if ours and self.loop is not None else None

    def line(self, frame, event, argument):
        if event == "return" and frame is self.loop:
            self.loop = None
        if event == "line" and self.loop is not None:
            self.lines += 1
            self.last[frame.f_code.co_filename, frame.f_lineno] = self.lines
            if self.lines == self.at:
                self.act()
        return self.line

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


def raised():
    raise KeyboardInterrupt


def sent(number):
    return lambda: os.kill(os.getpid(), number)


def sent_twice():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


STOPS = {"signal": sent(signal.SIGINT), "signal twice": sent_twice, "raised": raised}


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("stop", STOPS)
def test_stopped_at_every_line_and_resumed(tmp_path, handlers, stop):
    expected = looked(tmp_path / "whole")
    with AtLine() as whole:
        looked(tmp_path / "whole")
    assert len(whole.last) > 80
    saved = 0
    for where, at in whole.last.items():
        out = tmp_path / str(at)
        with AtLine(STOPS[stop], at), pytest.raises(KeyboardInterrupt) as said:
            looked(out)
        saved += "goes on from here" in str(said.value)
        assert looked(out, resume=True) == expected, where
        if stop == "signal":
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, where
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert saved > len(whole.last) / 3  # the other lines are outside the loop, or in the middle of a batch


def test_another_thread_changes_nothing(tmp_path, handlers):
    """Signals may hit any thread; Python's handlers run in the main one, whatever it is doing."""
    expected, over = looked(tmp_path / "whole"), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()

    class Hit(Lengths):
        def _take(self, waiting):
            super()._take(waiting)
            if len(self.each) == 1:
                signal.pthread_kill(thread.ident, signal.SIGINT)
                time.sleep(0.2)  # the thread is hit, and here, in mid-commit, the handler runs

    try:
        with pytest.raises(KeyboardInterrupt, match="goes on from here"):
            looked(tmp_path / "run", Hit())
    finally:
        over.set()
        thread.join()
    assert looked(tmp_path / "run", resume=True) == expected


def test_half_a_batch_is_never_saved(tmp_path):
    """Memory ran out, half of the batch is in the states, and the other half is stopped."""

    class Halves(Lengths):
        def finish(self, batch, outputs):
            if len(batch) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            if self.each.numel():
                raise KeyboardInterrupt
            super().finish(batch, outputs)

    expected = looked(tmp_path / "whole", batch_tokens=100)
    with pytest.raises(KeyboardInterrupt, match="cut short"):
        looked(tmp_path / "run", Halves(), batch_tokens=100)
    assert looked(tmp_path / "run", resume=True, batch_tokens=100) == expected


def test_the_handler_of_the_caller_runs_between_batches(tmp_path, handlers):
    """It is told of the signal once, may decide to go on, and stays the handler."""
    told = []

    def own(number, frame):
        told.append((number, len(lens.each)))

    class Sends(Lengths):
        def finish(self, batch, outputs):
            if not self.each.numel():
                signal.raise_signal(signal.SIGTERM)
                assert told == []
            super().finish(batch, outputs)

    signal.signal(signal.SIGTERM, own)
    lens = Sends()
    assert looked(tmp_path / "run", lens) == looked(tmp_path / "whole")
    assert told == [(signal.SIGTERM, 1)]
    assert signal.getsignal(signal.SIGTERM) is own


def test_only_the_main_thread_has_handlers(handlers):
    seen = []

    def work():
        with signals_between_batches() as heed:
            heed()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_an_ignored_signal_stays_ignored(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals_between_batches() as heed:
        signal.raise_signal(signal.SIGINT)
        heed()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
