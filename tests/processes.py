"""Commands in processes of their own, without the seconds that each would spend on imports.

They are forked from a server that has imported the library, unchecked by jaxtyping, and everything that it imports
late: signals, limits, exit statuses and output are those of any other process. A test of what is imported, and when,
needs a fresh interpreter instead.
"""

import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = (
    "lorgnette.cli.app",
    "lorgnette.looking.look",
    "lorgnette.lens.weights.lens",
    "lorgnette.lens.norms.lens",
    "lorgnette.models.classifier",
    "lorgnette.models.pruned",
    "lorgnette.reporting.views.gather",
    "lorgnette.texts.named",
    "lorgnette.texts.planted",
    "lorgnette.training",
    "lorgnette.training.pruning.export",
    "lorgnette.training.trainer",
    "pydantic.main",
    "sklearn.metrics",
    "transformers.models.auto.modeling_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
    "transformers.models.marian.modeling_marian",
    "transformers.models.mpnet.modeling_mpnet",
    "transformers.trainer",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    "onnxruntime",
    "onnxscript",
    "frozen_imports",
)
TIMEOUT = 170

START = "forkserver"

_server = multiprocessing.get_context(START)
_server.set_forkserver_preload(list(PRELOADED))


class Forked:
    """A running process; `python` is what follows the interpreter on a command line: -m lorgnette …, or -c CODE …."""

    def __init__(
        self, python: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forked-")
        self.files = {name: Path(self._folder.name, name) for name in ("stdout", "stderr")}
        for path in self.files.values():
            path.touch()
        environment = {**os.environ, **(env or {})}
        arguments = (list(python), environment, str(cwd or os.getcwd()), {n: str(p) for n, p in self.files.items()})
        self.process = _server.Process(target=_work, args=arguments, daemon=False)
        self.process.start()

    def said(self, name: str) -> str:
        """What it has written so far to "stdout" or "stderr"."""
        return self.files[name].read_text(encoding="utf-8", errors="replace")

    def send_signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self, timeout: float = TIMEOUT) -> "subprocess.CompletedProcess[str]":
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"still running after {timeout} s; it said: {self.said('stderr')[-2000:]}")
        done = subprocess.CompletedProcess([], self.process.exitcode, self.said("stdout"), self.said("stderr"))
        self._folder.cleanup()
        return done


def run(
    *python: str, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """One process, and what it left."""
    return Forked(python, env=env, cwd=cwd).wait()


def ranks(
    count: int, *python: str, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
) -> list["subprocess.CompletedProcess[str]"]:
    """As many processes as `torchrun --nproc-per-node` would start, told the same by their environment."""
    return [process.wait() for process in start(count, *python, cwd=cwd, env=env)]


def start(
    count: int, *python: str, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
) -> list[Forked]:
    """The same processes as they run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [
        Forked(python, env={**meet, **(env or {}), "RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd=cwd)
        for rank in range(count)
    ]


def _work(python: list[str], environment: dict[str, str], folder: str, files: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, number in (("stdout", 1), ("stderr", 2)):
        descriptor = os.open(files[name], os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    how, what, *arguments = python
    sys.path.insert(0, folder)
    sys.argv = [what if how == "-m" else "-c", *arguments]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<command>", "exec"), {"__name__": "__main__"})
