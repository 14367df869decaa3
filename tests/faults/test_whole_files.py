"""Files and folders that are whole or not there, whoever is killed; what is said of a disk that is full."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lorgnette import files
from lorgnette.errors import UserError, outside
from lorgnette.files import folder_written_whole, hidden, is_locked, locked, recover, trouble, written_whole


def ours(folder):
    return {"result.json"}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Killed(BaseException):
    """Like a kill: nothing may tidy up."""


def written(folder, text):
    with folder_written_whole(folder, ours) as partial:
        (partial / "result.json").write_text(text)


RENAMES = 4
"""The old folder aside, the new one in place, the reader's one file back, the rest to where it may go."""


def write_until(monkeypatch, folder, stop):
    """Killed at a rename: neither `finally` nor `except` of ours does anything afterwards."""
    count = 0

    def counted(real):
        def do(*given):
            nonlocal count
            count += 1
            if count > stop:
                raise Killed
            return real(*given)

        return do

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "rename", counted(os.rename))
        patch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            written(folder, "new")


@pytest.mark.parametrize("stop", range(RENAMES))
def test_a_kill_between_two_renames_is_put_in_order_by_the_next_run(tmp_path, monkeypatch, stop):
    folder = tmp_path / "run"
    written(folder, "old")
    (folder / "thesis.tex").write_text("mine")
    (tmp_path / ".run.mine.old").mkdir()  # a name that only looks like one of ours
    write_until(monkeypatch, folder, stop)
    recover(folder, ours)
    assert (folder / "thesis.tex").read_text() == "mine"
    assert (folder / "result.json").read_text() == ("old" if stop == 0 else "new")
    written(folder, "newest")
    assert names(folder) == ["result.json", "thesis.tex"]
    assert (folder / "result.json").read_text() == "newest"
    assert names(tmp_path) == [".run.mine.old", "run"]


def test_a_file_of_the_reader_is_not_replaced(tmp_path):
    folder = tmp_path / "run"
    written(folder, "old")
    (folder / "notes.json").write_text("mine")
    refused = pytest.raises(UserError, match=r"notes\.json was not written by this command")
    with refused, folder_written_whole(folder, ours) as partial:
        (partial / "notes.json").write_text("ours")
    assert (folder / "notes.json").read_text() == "mine"
    assert names(tmp_path) == ["run"]


def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(tmp_path, monkeypatch):
    folder, real = tmp_path / "run", os.rename
    written(folder, "old")

    def failing(source, target):
        if str(source).endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error", str(source))
        real(source, target)

    monkeypatch.setattr(files.os, "rename", failing)
    with pytest.raises(UserError, match="the disk reports an error"):
        written(folder, "new")
    assert (folder / "result.json").read_text() == "old"
    assert names(tmp_path) == ["run"]


WRITER = """
import sys, time
from lorgnette.files import folder_written_whole, written_whole, locked
from pathlib import Path
how, path = sys.argv[1], Path(sys.argv[2])
with {"file": written_whole, "folder": lambda p: folder_written_whole(p, lambda _: set()),
      "lock": lambda p: locked(p, "")}[how](path) as partial:
    print("in", flush=True)
    time.sleep(60)
"""


def started(how, path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, how, str(path)], stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "in\n"
    return process


@pytest.mark.parametrize("how", ["file", "folder"])
def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path, how):
    path = tmp_path / "out"
    living, dead = started(how, path), started(how, path)
    dead.kill()
    dead.wait()
    assert len(names(tmp_path)) == 2
    if how == "file":
        with written_whole(path) as partial:
            partial.write_text("whole")
    else:
        written(path, "whole")
    (left,) = [name for name in names(tmp_path) if name.endswith(".partial")]
    assert names(tmp_path) == [left, "out"]
    living.kill()
    living.wait()


def test_a_lock_ends_with_its_process(tmp_path):
    folder = tmp_path / "work"
    process = started("lock", folder)
    assert is_locked(folder)
    with pytest.raises(UserError, match="busy"), locked(folder, "busy"):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not is_locked(folder)
    with locked(folder, "busy"):
        assert is_locked(folder)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ENAMETOOLONG]
)
def test_a_disk_that_does_not_play_along_is_one_line(tmp_path, monkeypatch, number):
    path = tmp_path / "page.html"
    path.write_text("before")
    with (
        pytest.raises(UserError, match=r"Cannot write .*page\.html: .*\. *$") as raised,
        written_whole(path) as partial,
    ):
        raise OSError(number, os.strerror(number), str(partial))
    assert isinstance(raised.value.__cause__, OSError)
    assert path.read_text() == "before"
    assert names(tmp_path) == ["page.html"]


def test_errors_of_other_files_are_not_taken_for_ours(tmp_path):
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "a" / "page.html"):
        Path("/nowhere/at/all").read_text()


@pytest.mark.parametrize(
    "said",
    [
        "Error while serializing: I/O error: No space left on device (os error 28)",
        "[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0",
        "PytorchStreamWriter failed writing file data/0: file write failed",
    ],
)
def test_what_libraries_say_of_a_full_disk(said):
    assert trouble(RuntimeError(said)) == trouble(OSError(errno.ENOSPC, "No space left on device"))
    assert trouble(RuntimeError("a bug")) is None


def test_a_device_is_not_replaced_by_a_file():
    before = os.stat("/dev/null")
    with pytest.raises(UserError, match="device"), written_whole("/dev/null") as partial:
        partial.write_text("x")
    assert os.stat("/dev/null").st_rdev == before.st_rdev


@pytest.mark.parametrize("path", ["/", "x" * 300, "a/" * 3000])
def test_odd_paths(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError), written_whole(path) as partial:
        partial.write_text("x")
    with pytest.raises(UserError), folder_written_whole(path, ours):
        pass
    assert names(tmp_path) == []


def test_a_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    written(tmp_path / "link", "one")
    written(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "disk") == ["run"]
    assert hidden(tmp_path / "link", "unfinished") == tmp_path / "disk" / ".run.unfinished"


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    with written_whole(small_disk / "small.html") as partial:
        partial.write_text("fits")
    with (
        pytest.raises(UserError, match="the disk is full"),
        written_whole(small_disk / "large") as partial,
    ):
        partial.write_bytes(b"x" * 10**6)
    assert names(small_disk) == ["small.html"]


def test_the_gate_tells_the_input_from_a_bug_of_ours():
    refused = pytest.raises(UserError, match=r"The file x: .*Expecting .*\. Write it again\.$")
    with refused as raised, outside("The file x", "Write it again."):
        json.loads("{]")
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(UserError, match="division by zero"), outside("x", "y."):
        divmod(1, 0)
    ours_too: dict = {}
    exec(compile("def bug():\n    None.name", files.__file__, "exec"), ours_too)  # as if a line of the package failed
    with pytest.raises(AttributeError), outside("The file x", "Write it again."):
        ours_too["bug"]()
    with pytest.raises(KeyboardInterrupt), outside("The file x", "Write it again."):
        raise KeyboardInterrupt
