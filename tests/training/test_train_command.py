"""The command in processes of its own: killed and resumed, and two processes that train one model."""

import signal
import time

import pytest
from planted_runs import plain_record, same, weights
from processes import Forked, ranks, run

from lorgnette.training import Trained


def command(*arguments):
    return ["-m", "lorgnette", "train", "tp9-residual-cls", "--corpus", "planted", *arguments]


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
    whole = run(*command(*OPTIONS, "--out", str(tmp_path / "a")))
    assert whole.returncode == 0, whole.stderr
    trained = next(Trained.load(path.parent) for path in sorted(tmp_path.rglob("training.json")))
    low, high = trained.accuracy_interval
    tested = trained.metrics["test"]
    right = round(tested["accuracy"] * tested["texts"])
    z, n = 1.959963984540054, tested["texts"]  # Wilson 1927, by hand
    middle, half = (right + z**2 / 2) / (n + z**2), z / (n + z**2) * (right * (n - right) / n + z**2 / 4) ** 0.5
    assert (low, high) == pytest.approx((middle - half, middle + half))
    said = f"test accuracy {trained.accuracy:.4f} (95 % interval over {n:,} texts: {low:.4f} to {high:.4f})"
    assert said in " ".join(whole.stdout.split())
    assert whole.stderr.count("epoch") == 3
    killed = Forked(command(*OPTIONS, "--out", str(tmp_path / "b")))
    while not list(tmp_path.glob(".b.unfinished/checkpoint-*/trainer_state.json")):  # the first epoch is over
        assert killed.process.is_alive(), killed.said("stderr")
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait().returncode == -signal.SIGKILL
    assert not (tmp_path / "b").exists()
    done = run(*command(*OPTIONS, "--out", str(tmp_path / "b"), "--resume"))
    assert done.returncode == 0, done.stderr
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert plain_record(tmp_path / "a") == plain_record(tmp_path / "b")


def test_two_processes_train_one_model(tmp_path):
    done = ranks(2, *command(*OPTIONS, "--out", str(tmp_path / "out"), "--entropy", "0.01"))
    assert [process.returncode for process in done] == [0, 0], done[0].stderr + done[1].stderr
    record = Trained.load(tmp_path / "out").record
    assert record["processes"] == 2
    assert [entry["step"] for entry in record["curve"]] == [3, 6, 9]  # 320 texts, 128 at a time
    assert "".join(process.stdout for process in done).count("test accuracy") == 1
