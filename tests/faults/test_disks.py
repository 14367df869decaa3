"""Disks that are full or not ours to write, files that vanish: one line, and everything else as it was."""

import os
import pickle
import resource
import shutil
import sys

import pytest
import torch
from fuzz.areas import place_for_cases
from fuzz.killed import everything
from fuzz.trial import answered

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and audit hooks in forks")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with place_for_cases(tmp_path_factory.mktemp("fuzz")) as place:
        yield place


def in_fork(function):
    """What a function returns in a process of its own, which may be spoilt."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            content = stream.read()
        os.waitpid(child, 0)
        return pickle.loads(content)
    try:
        torch.set_num_threads(1)
        value = function()
    except BaseException as error:
        value = error
    with os.fdopen(write, "wb") as stream:
        stream.write(pickle.dumps(value))
    os._exit(0)


def command(name, place, folder):
    """A command that reads and writes below `folder`."""
    run, texts, model = folder / "run", folder / "texts.txt", folder / "bert"
    rows, training = folder / "rows.jsonl", ["--label-column", "label", "--validation", "0.5", "--epochs", "1"]
    return {
        "look": ["look", str(model), "-c", str(texts), "-o", str(folder / "new"), "--batch-tokens", "8"],
        "look again": ["look", str(model), "-c", str(texts), "-o", str(run), "-l", "weights,norms"],
        "trace": ["trace", str(model), "the cat sat", "--html", str(folder / "cat.html")],
        "report": ["report", str(run)],
        "compare": ["compare", str(run), str(run), "--out", str(folder / "page.html")],
        "train": ["train", str(model), "-c", str(rows), *training, "-o", str(folder / "trained")],
    }[name]


@pytest.fixture
def folder(place, tmp_path):
    folder = tmp_path / "disk"
    for name in ("run", "bert"):
        shutil.copytree(place.root / name, folder / name)
    shutil.copy(place.texts, folder / "texts.txt")
    (folder / "run" / "thesis.tex").write_text("mine")
    rows = "".join(f'{{"text": "the cat sat {n}", "label": "LABEL_{n % 2}"}}\n' for n in range(8))
    (folder / "rows.jsonl").write_text(rows)
    return folder


COMMANDS = ("look", "look again", "trace", "report", "compare", "train")


def run(arguments):
    answer = answered(arguments)
    answer.results.clear()  # they do not go through a pipe
    return answer


def one_line(answer):
    said = [line for line in answer.err.splitlines() if line.startswith("lorgnette: ")]
    assert not answer.error, answer.error
    assert answer.status == 1
    assert len(said) == 1, answer.err
    return said[0]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("most", [0, 2000])
def test_a_disk_that_takes_no_more(place, folder, name, most):
    """A limit on the size of a file is what a full disk is to a writer, and needs no disk of its own."""
    before = everything(folder)

    def spoilt():
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return run(command(name, place, folder))

    assert "Cannot write" in one_line(in_fork(spoilt)) or most
    after = everything(folder)
    assert {name: after[name] for name in before} == before
    assert not [name for name in after.keys() - before.keys() if ".unfinished" not in name], (
        after.keys() - before.keys()
    )
    whole = in_fork(lambda: run([*command(name, place, folder), *(["--resume"] if name == "train" else [])]))
    assert whole.status == 0, whole.err + whole.error
    assert not list(folder.rglob(".*"))


def test_a_full_disk_leaves_no_half_package(tmp_path):
    """`new lens`, also into a folder that is there and empty."""
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        out = tmp_path / name

        def spoilt(out=out):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
            return run(["new", "lens", "mine", "--out", str(out)])

        assert "Cannot write" in one_line(in_fork(spoilt))
        assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


@pytest.mark.parametrize("file", ["file", "/dev/full"])
def test_tables_need_a_folder(folder, file):
    (folder / "file").touch()
    answer = in_fork(lambda: run(["export", str(folder / "run"), "--out", str(folder / file)]))
    assert "a folder is needed" in one_line(answer)


@pytest.mark.parametrize("name", ["look", "trace", "compare", "train"])
@pytest.mark.parametrize("where", ["/sys/kernel/lorgnette", "/proc/lorgnette"])
def test_a_disk_that_is_not_ours(place, folder, name, where):
    given = command(name, place, folder)
    given[given.index({"trace": "--html", "compare": "--out"}.get(name, "-o")) + 1] = where
    one_line(in_fork(lambda: run(given)))


class Vanish:
    """An audit hook that removes the k-th file that is opened for reading below a folder, before it is opened."""

    def __init__(self, folder, stop):
        self.folder, self.stop, self.number = str(folder), stop, 0

    def __call__(self, event, arguments):
        if event != "open" or not isinstance(arguments[0], str) or not arguments[0].startswith(self.folder):
            return
        if not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and os.path.isfile(arguments[0]):
            self.number += 1
            if self.number == self.stop:
                os.unlink(arguments[0])


@pytest.mark.parametrize("name", ["look", "report", "compare"])
def test_a_file_that_vanishes(place, folder, name):
    """At every moment at which Python opens a file: one line, or the answer if it was not needed any more."""

    def opened(stop):
        hook = Vanish(folder, stop)
        sys.addaudithook(hook)
        answer = run(command(name, place, folder))
        return answer, hook.number

    whole, count = in_fork(lambda: opened(0))
    assert (whole.status, count > 2) == (0, True), whole.err
    kept = folder.with_name("kept")
    for stop in range(1, count + 1):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
        answer, _ = in_fork(lambda stop=stop: opened(stop))
        if answer.status != 0:
            one_line(answer)
        shutil.rmtree(folder)
        kept.rename(folder)
