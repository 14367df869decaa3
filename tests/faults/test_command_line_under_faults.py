"""The command line when it is stopped, when its output goes nowhere, and with odd locales: one line, a right status."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from processes import run
from tiny import classifier

RUN = [sys.executable, "-m", "lorgnette"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    subject = classifier(torch.float32)
    subject.model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return str(folder)


def ran(*arguments, **more):
    environment = {**os.environ, **more.pop("env", {})}
    return subprocess.run([*RUN, *arguments], capture_output=True, text=True, env=environment, timeout=170, **more)


def one_line(text):
    return text.startswith("lorgnette: ") and len(text.splitlines()) == 1


def test_a_full_disk_behind_the_output_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*RUN, "list", "corpora"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=170)
    assert done.returncode == 1
    assert one_line(done.stderr), done.stderr


def test_bytes_that_are_no_text_and_terminals_without_emoji(model):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("-m", "lorgnette", "trace", model, os.fsdecode(b"cat \xff"))
    assert done.returncode == 1
    assert one_line(done.stderr), done.stderr
    done = ran("trace", model, "The cat sat 🙂", env=ascii_only)
    assert done.returncode == 0, done.stderr


def test_a_name_that_the_locale_cannot_write_is_one_line(tmp_path):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["new", "lens", "mine", "--out", str(tmp_path / "é")], ["report", str(tmp_path / "é")]):
        done = ran(*arguments, env=ascii_only)
        assert done.returncode == 1, done.stderr
        assert one_line(done.stderr), done.stderr
        assert "UTF-8 locale" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed):
    done = subprocess.run(f"{sys.executable} -m lorgnette list corpora {closed}", shell=True, capture_output=True,
                          text=True, timeout=170)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert bool(done.stdout) == (">&-" not in closed.split())


def test_a_reader_who_goes_does_not_stop_the_files(model, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat.\n" * 4)
    look = [*RUN, "look", model, "-c", str(texts), "-o", str(tmp_path / "run")]
    with subprocess.Popen(look, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()  # before the first line
        said = process.stderr.read()
        assert process.wait(170) == 0, said
    assert "Error" not in said
    assert {"report.html", "examples.json"} <= {path.name for path in (tmp_path / "run").iterdir()}


STOPPED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
sys.argv = ["lorgnette", *sys.argv[2:]] if (number := int(sys.argv[1])) else []
from lorgnette.looking.passes import Passes
passed, count = Passes.take, 0
def counted(*given):
    global count
    count += 1
    if count == 5:
        os.kill(os.getpid(), number)
    passed(*given)
Passes.take = counted
from lorgnette.cli import main
main()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_keeps_what_resume_needs(model, tmp_path, number, status):
    texts = tmp_path / "texts.txt"
    texts.write_text("The cat sat on the mat, and it was good!\n" * 40)
    look = ["look", model, "-c", str(texts), "-o", str(tmp_path / "run"), "--batch-tokens", "32"]
    done = run("-c", STOPPED, str(int(number)), *look)
    assert done.returncode == status, done.stderr
    assert "--resume goes on from here" in done.stderr
    assert list(tmp_path.glob(".run.unfinished/states-0.safetensors"))


def test_a_signal_at_the_very_start_is_one_line():
    process = subprocess.Popen([*RUN, "list", "lenses"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said


PARSING = """
import os, signal, sys
sys.argv = ["lorgnette", "list", "lenses"]
from typer.core import TyperGroup
TyperGroup.parse_args = lambda *_: os.kill(os.getpid(), signal.SIGTERM) or exec("while True: pass")
from lorgnette.cli import main
main()
"""


def test_a_signal_while_arguments_are_parsed_has_its_own_status():
    done = run("-c", PARSING)
    assert (done.returncode, done.stderr) == (143, "lorgnette: interrupted.\n")
