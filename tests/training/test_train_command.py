"""The command in processes of its own: killed and resumed, and two processes that train one model."""

import signal
import subprocess
import sys
import time

from planted_runs import plain_record, same, weights

from lorgnette.training import Trained


def command(*arguments):
    return [sys.executable, "-m", "lorgnette", "train", "tp9-residual-cls", "--corpus", "planted", *arguments]


OPTIONS = (
    "--embeddings",
    "random",
    "--layers",
    "1",
    "--width",
    "16",
    "--dropout",
    "0.1",
    "--epochs",
    "3",
    "--limit",
    "320",
)


def test_the_command_killed_and_resumed_says_the_same(tmp_path):
    whole = subprocess.run(command(*OPTIONS, "--out", str(tmp_path / "a")), capture_output=True, text=True, timeout=150)
    assert whole.returncode == 0, whole.stderr
    assert "test accuracy 0." in whole.stdout
    assert whole.stderr.count("epoch") == 3
    with subprocess.Popen(command(*OPTIONS, "--out", str(tmp_path / "b")), stderr=subprocess.PIPE, text=True) as killed:
        killed.stderr.readline()  # the first epoch is over
        while not list(tmp_path.glob(".b.unfinished/checkpoint-*/trainer_state.json")):
            time.sleep(0.005)
        killed.send_signal(signal.SIGKILL)
    assert not (tmp_path / "b").exists()
    again = command(*OPTIONS, "--out", str(tmp_path / "b"), "--resume")
    done = subprocess.run(again, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert plain_record(tmp_path / "a") == plain_record(tmp_path / "b")


def test_two_processes_train_one_model(tmp_path):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = command(*OPTIONS, "--out", str(tmp_path / "out"), "--entropy", "0.01")[1:]
    done = subprocess.run([*start, *arguments], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    record = Trained.load(tmp_path / "out").record
    assert record["processes"] == 2
    assert [entry["step"] for entry in record["curve"]] == [3, 6, 9]  # 320 texts, 128 at a time
    assert done.stdout.count("test accuracy") == 1
