"""The scripts of examples/scale, each on the engine that it is for: they give what one process finds."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
from tiny import TEXTS, bert

import lorgnette as lo

ROOT = Path(__file__).parent.parent
SCALE = ROOT / "examples" / "scale"
LONGEST = 40
"""Lines of a script."""


@pytest.fixture
def work(tmp_path):
    """A folder with a model and texts, and the environment in which the scripts run."""
    subject = bert()
    subject.model.save_pretrained(tmp_path / "model")
    subject.tokenizer.save_pretrained(tmp_path / "model")
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "RAY_worker_niceness": "0",  # 15 otherwise: beside other tests, its workers would hardly come to run
        "HOME": str(tmp_path),  # what an engine writes there goes with the folder
    }
    return tmp_path, environment


def written_texts(folder, times):
    (folder / "texts.txt").write_text("".join(f"{text}\n" for _ in range(times) for text in TEXTS))


def assert_as_one_process(folder, out):
    one = lo.look(lo.load(folder / "model"), lo.corpus(folder / "texts.txt"), "weights", progress=False)["weights"]
    found = lo.Results.load(folder / out)["weights"]
    assert found.provenance.texts == one.provenance.texts > 0
    xr.testing.assert_allclose(found.data["entropy"], one.data["entropy"], rtol=1e-5)  # in 32 bits
    assert found.data["entropy_count"].identical(one.data["entropy_count"])


def test_scripts_are_short():
    scripts = [path for path in SCALE.iterdir() if path.suffix in (".sh", ".py")]
    assert {path.stem for path in scripts} == {"slurm", "xargs", "torchrun", "ray_tasks"}
    assert all(len(path.read_text().splitlines()) <= LONGEST for path in scripts)


class Hosts:
    """Two hosts: network namespaces, each with an address of its own, or two groups of processes on this machine."""

    def __init__(self):
        self.names = [f"lorgnette-{os.getpid()}-{number}" for number in range(2)]
        self.links = [f"lg{os.getpid()}{letter}"[:15] for letter in "ab"]
        self.kind, self.why_none = "loopback", self._without_namespaces()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.environment = {"GLOO_SOCKET_IFNAME": "lo", "PORT": str(free.getsockname()[1])}

    def __enter__(self):
        if self.why_none:
            return self
        try:
            self._connect()
        except BaseException:  # they can be had here, and something is wrong
            self._remove()
            raise
        return self

    @staticmethod
    def _without_namespaces():
        """Why there can be none here; None if there can."""
        if sys.platform != "linux" or os.geteuid() != 0:
            return "only root has them, on Linux"
        if shutil.which("ip") is None:
            return "iproute2 is not installed"
        held = int(
            next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)[7:], 16
        )
        if not all(held >> capability & 1 for capability in (12, 21)):  # CAP_NET_ADMIN, CAP_SYS_ADMIN
            return "root has no capability to make them in this container"
        return None

    def _connect(self):
        for name in self.names:
            self._ip("netns", "add", name)
        (first, second), (one, other) = self.names, self.links
        self._ip("link", "add", one, "netns", first, "type", "veth", "peer", "name", other, "netns", second)
        for number, (name, link) in enumerate(zip(self.names, self.links, strict=True), 1):
            self._ip("-n", name, "addr", "add", f"10.213.7.{number}/24", "dev", link)
            self._ip("-n", name, "link", "set", link, "up")
            self._ip("-n", name, "link", "set", "lo", "up")
        self.kind = "namespaces"

    @staticmethod
    def _ip(*words):
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"

    def _remove(self):
        for name in self.names if shutil.which("ip") else ():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def __exit__(self, *_):
        if self.kind == "namespaces":
            self._remove()

    @property
    def head(self):
        return "10.213.7.1" if self.kind == "namespaces" else "127.0.0.1"

    def start(self, number, words, environment, log):
        """The command on one of the hosts."""
        if self.kind == "namespaces":
            words = ["ip", "netns", "exec", self.names[number], *words]
            environment = {**environment, "GLOO_SOCKET_IFNAME": self.links[number]}
        else:
            environment = {**environment, **self.environment}
        return subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT)


def test_xargs(work):
    """The script itself, with two shards at a time."""
    folder, environment = work
    written_texts(folder, 3)
    words = [SCALE / "xargs.sh", folder / "model", folder / "texts.txt", folder / "run", 2, 2, "weights"]
    done = subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path.name for path in (folder / "run.parts").iterdir()} == {"1", "2"}
    assert_as_one_process(folder, "run")


def test_torchrun_on_two_hosts(work, capsys):
    folder, environment = work
    written_texts(folder, 60)
    with Hosts() as hosts:
        if hosts.why_none:
            with capsys.disabled():
                print(f"\nNo network namespaces here ({hosts.why_none}): two groups of processes on loopback instead.")
        running = []
        for number in range(2):
            words = [SCALE / "torchrun.sh", hosts.head, number, 2, folder / "model", folder / "texts.txt"]
            words += [folder / "run", 1, "weights"]
            with (folder / f"log{number}").open("w") as log:
                running.append(hosts.start(number, list(map(str, words)), environment, log))
        try:
            codes = [each.wait(timeout=150) for each in running]
        finally:
            for each in running:
                each.terminate()  # and its workers with it
                each.wait(timeout=20)
        assert codes == [0, 0], "".join((folder / f"log{number}").read_text()[-2000:] for number in range(2))
    assert_as_one_process(folder, "run")


def test_ray_with_a_worker_that_is_lost(work):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (pip install 'lorgnette[ray]'): examples/scale/ray_tasks.py was not run")
    folder, environment = work
    written_texts(folder, 3000)
    words = [
        sys.executable,
        SCALE / "ray_tasks.py",
        folder / "model",
        folder / "texts.txt",
        folder / "run",
        3,
        "weights",
    ]
    with (folder / "log").open("w") as log:
        script = subprocess.Popen(list(map(str, words)), env=environment, stdout=log, stderr=subprocess.STDOUT)
        lost = None
        try:
            while script.poll() is None:
                if lost is None and (lost := worker_amid(script.pid, folder / "texts.txt")) is not None:
                    os.kill(lost, signal.SIGKILL)
                time.sleep(0.01)
        finally:
            script.terminate()  # and its cluster with it
            script.wait(timeout=20)
    log = (folder / "log").read_text()
    assert script.returncode == 0, log[-3000:]
    assert lost is not None, "no worker was caught reading the corpus"
    assert "Task look failed" in log
    assert "will be retried" in log
    assert_as_one_process(folder, "run")


def worker_amid(script, corpus):
    """A worker of Ray, below this process, that has read between a quarter and a half of the corpus."""
    size = corpus.stat().st_size
    for process in below(script):
        try:
            if not (Path("/proc") / str(process) / "cmdline").read_bytes().startswith(b"ray::look"):
                continue
            for handle in (Path("/proc") / str(process) / "fd").iterdir():
                if handle.exists() and handle.resolve() == corpus.resolve():
                    told = (Path("/proc") / str(process) / "fdinfo" / handle.name).read_text()
                    if size / 4 < int(told.split()[1]) < size / 2:
                        return process
        except OSError:  # it ended meanwhile
            continue
    return None


def below(ancestor):
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {ancestor}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}
