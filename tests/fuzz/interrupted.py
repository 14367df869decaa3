"""`lorgnette look` stopped by SIGINT or SIGTERM at random moments, resumed, and compared with a run that was not."""

import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import lorgnette as lo
from fuzz.place import WORD, Place
from fuzz.trial import answered, difference, numbers

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
TEXTS = 150


def interrupted_at_random(place: Place, root: Path, count: int = 200, seed: int = 0) -> tuple[int, int, list[str]]:
    """How many runs were stopped, how many of them had saved something, and what was wrong after they were resumed.

    A run that ends before its signal is not counted, and another is drawn. Every other run has a second thread alive.
    """
    draw = random.Random(seed)
    root.mkdir(parents=True)
    texts = root / "texts.txt"
    texts.write_text("\n".join(" ".join(draw.choices(WORD, k=draw.randint(2, 12))) for _ in range(TEXTS)))
    look = ["look", place.model(), "-c", str(texts), "--dtype", "float64", "--batch-tokens", "48", "--out"]
    handler = signal.getsignal(signal.SIGTERM)
    answered([*look, str(root / "first")])  # everything is imported here, and forks spend their time in the look
    signal.signal(signal.SIGTERM, handler)
    began = time.monotonic()
    if _ended(_started([*look, str(root / "whole")])) != 0:
        raise RuntimeError("the run that nobody stops has failed")
    seconds = time.monotonic() - began
    expected = lo.Results.load(root / "whole")
    stopped, saved, wrong = 0, 0, list[str]()
    for number in range(20 * count):
        if stopped == count:
            break
        out, kind = root / f"run-{number}", draw.choice(list(STATUS))
        process = _started([*look, str(out)], thread=number % 2 == 1)
        time.sleep(draw.uniform(0, seconds))
        os.kill(process, kind)
        status = _ended(process)
        if status == 0:
            shutil.rmtree(out)
            continue
        stopped += 1
        if stopped % 20 == 0:
            print(f"look stopped {stopped} times; wrong: {wrong}", file=sys.stderr, flush=True)
        kept = root / f".run-{number}.unfinished"
        saved += kept.is_dir()
        moment = f"run {number}, {kind.name}"
        if status != STATUS[kind]:
            wrong.append(f"{moment}: it ended with {status}")
        if (again := _ended(_started([*look, str(out), "--resume"]))) != 0:
            wrong.append(f"{moment}: resumed, it ended with {again}")
        else:
            found = lo.Results.load(out)
            differs = difference(numbers(found), numbers(expected))
            texts_of = {result.provenance.texts for result in found.values()}
            if differs or texts_of != {TEXTS} or kept.exists():
                wrong.append(f"{moment}: {differs}, {texts_of} texts, {'debris' if kept.exists() else 'no debris'}")
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(kept, ignore_errors=True)
    if stopped < count:
        wrong.append(f"only {stopped} of {count} runs were stopped before their end")
    return stopped, saved, wrong


def _started(arguments: list[str], *, thread: bool = False) -> int:
    """The id of a forked process in which the command line begins now; signals reach it as they reach any other."""
    sys.stdout.flush()
    sys.stderr.flush()
    ready, begins = os.pipe()
    child = os.fork()
    if child:
        os.close(begins)
        os.read(ready, 1)
        os.close(ready)
        return child
    try:
        _command(arguments, begins, thread=thread)
        os._exit(0)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        os._exit(99)


def _ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _command(arguments: list[str], begins: int, *, thread: bool) -> None:
    """The command line in this process, which is a fork, so that nothing needs to be undone."""
    import torch

    import lorgnette.cli
    import lorgnette.cli.look

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lorgnette.cli._terminate)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    torch.set_num_threads(1)
    lorgnette.cli.look.write_report = lambda *_: None  # the page takes longer than the look, and is no part of it
    lorgnette.cli.look._show = lambda *_, **__: None
    if thread:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    sys.argv = ["lorgnette", *arguments]
    os.write(begins, b"!")
    lorgnette.cli.main()
