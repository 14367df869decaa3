"""Training folders: one process at a time, and only checkpoints that have everything."""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "training"))
from planted_runs import plain_record, same, settings, weights
from safetensors.torch import load_file

from lorgnette.errors import UserError
from lorgnette.training import train
from lorgnette.training.folder import RunFolder
from lorgnette.training.trainer import Tally


class Stop(BaseException):
    """Like a kill: nothing that tidies up may catch it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(settings(out))
    return out


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """A run that was killed in its third epoch."""
    out = tmp_path_factory.mktemp("runs") / "cut"
    count, add = 0, Tally.add

    def counted(self, *given):
        nonlocal count
        count += 1
        if count > 20:
            raise Stop
        add(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tally, "add", counted)
        with pytest.raises(Stop):
            train(settings(out))
    return out


@pytest.fixture
def cut(broken_off, tmp_path):
    shutil.copytree(RunFolder(broken_off).work, tmp_path / ".run.unfinished")
    return tmp_path / "run"


def test_two_runs_at_once_are_refused(cut):
    with RunFolder(cut).locked():
        for resume in (False, True):
            with pytest.raises(UserError, match="another process is training"):
                train(settings(cut, resume=resume))
    with pytest.raises(UserError, match="pass --resume"):
        train(settings(cut))


def test_a_run_that_comes_up_while_the_texts_are_read_is_seen(tmp_path, monkeypatch):
    from lorgnette.training import run as running

    other, prepare = RunFolder(tmp_path / "run").locked(), running.prepare

    def slow(given):
        other.__enter__()
        return prepare(given)

    monkeypatch.setattr(running, "prepare", slow)
    with pytest.raises(UserError, match="another process is training"):
        train(settings(tmp_path / "run"))
    other.__exit__(None, None, None)


NEEDED = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "model.safetensors")


@pytest.mark.parametrize("name", NEEDED)
def test_a_checkpoint_without_a_part_of_it_is_not_gone_on_from(cut, name):
    first, last = sorted(RunFolder(cut).work.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert RunFolder(cut).checkpoint() == last
    (last / name).unlink()
    assert RunFolder(cut).checkpoint() == first
    content = (first / name).read_bytes()
    (first / name).write_bytes(content[: len(content) // 2])
    assert RunFolder(cut).checkpoint() is None


@pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors"])
def test_what_is_gone_on_from_ends_at_the_same_numbers(cut, finished, name):
    last = RunFolder(cut).checkpoint()
    (last / name).unlink()
    train(settings(cut, resume=True))
    assert same(weights(cut), weights(finished))
    assert plain_record(cut) == plain_record(finished)
    assert not list(cut.parent.glob(".*"))


def test_a_best_checkpoint_that_has_vanished_is_not_replaced_by_the_last(cut):
    last = RunFolder(cut).checkpoint()
    state = json.loads((last / "trainer_state.json").read_text())
    state["best_model_checkpoint"] = "/elsewhere/checkpoint-3"
    (last / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match=r"the best checkpoint .*checkpoint-3 is missing"):
        train(settings(cut, resume=True))


def test_the_best_checkpoint_of_a_folder_that_was_moved_is_still_the_best(broken_off, cut):
    last = RunFolder(cut).checkpoint()
    shutil.copytree(last, last.with_name("checkpoint-8"))  # the best one, and not the last
    state = json.loads((last / "trainer_state.json").read_text())
    state |= {"best_model_checkpoint": str(RunFolder(broken_off).work / "checkpoint-8"), "best_metric": -1.0}
    state["best_global_step"] = 8
    (last / "trainer_state.json").write_text(json.dumps(state))
    expected = load_file(last / "model.safetensors")
    train(settings(cut, resume=True))
    assert same(load_file(cut / "model.safetensors"), expected)


@pytest.mark.parametrize(("name", "other"), [("optimizer.pt", "scheduler.pt"), ("rng_state.pth", "scheduler.pt")])
def test_a_damaged_checkpoint_is_one_line(cut, name, other):
    last = RunFolder(cut).checkpoint()
    shutil.copy(last / other, last / name)
    with pytest.raises(UserError, match="Cannot resume from the checkpoint"):
        train(settings(cut, resume=True))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": 7}', "{" * 5000, "[" * 100_000])
def test_a_damaged_record_of_an_unfinished_run_is_one_line(cut, content):
    (RunFolder(cut).work / "run.json").write_text(content)
    with pytest.raises(UserError):
        train(settings(cut, resume=True))
