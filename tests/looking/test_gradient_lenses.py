"""Lenses that go backwards, or through the corpus twice: two processes and interrupted runs give the same numbers."""

from pathlib import Path

import pytest
import torch
from processes import ranks
from tiny import TREEBANK, classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.ablation.means import HeadMeans
from lorgnette.lens.importance.lens import Importance
from lorgnette.testing import assert_close
from lorgnette.texts.corpus import Corpus

LENSES = ["importance", "rationales:methods=attnlrp+random"]
LOOK = f"""
import os, sys
import lorgnette as lo
import torch
from lorgnette.lens.importance.lens import Importance
from tiny import TREEBANK, classifier

where, how = sys.argv[1:]
calls, finish = iter(range(9)), Importance.finish
def stopped(lens, *given):
    if how == "stop" and next(calls) == 1 - int(os.environ["RANK"]):
        raise KeyboardInterrupt
    return finish(lens, *given)

Importance.finish = stopped
torch.manual_seed(0)
lo.look(classifier(), TREEBANK, {LENSES}, batch_tokens=20, progress=False, out=where, resume=how == "resume")
"""


def test_two_processes_interrupted_and_resumed_give_the_results_of_one(tmp_path):
    """Each at another batch of its own: the first process at its second, the second at its first."""
    for how, status in (("stop", 1), ("resume", 0)):
        for done in ranks(2, "-c", LOOK, str(tmp_path / "two"), how, cwd=Path(__file__).parents[1]):
            assert done.returncode == status, done.stderr[-3000:]
            assert ("the same command with --resume" in done.stderr) == (how == "stop")
    torch.manual_seed(0)
    expected = lo.look(classifier(), TREEBANK, LENSES, batch_tokens=20, progress=False)
    found = lo.Results.load(tmp_path / "two")
    assert list(found) == list(expected) == ["importance", "rationales"]
    for name in found:
        assert_close(expected[name].data, found[name].data, name, 1e-9)
        assert found[name].provenance.texts == len(TREEBANK)


class Interrupted:
    """A method that is interrupted at its third call, and counts them."""

    def __init__(self, method, at=3):
        self.method, self.at, self.calls = method, at, 0

    def __get__(self, lens, owner):
        def call(*given):
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
            return self.method(lens, *given)

        return call


@pytest.mark.parametrize("stopped", [HeadMeans, Importance])
def test_interrupted_in_either_pass_and_resumed(tmp_path, monkeypatch, stopped):
    """Ctrl-C at the third text of the pass before, or of the look itself: each text goes through each pass once."""
    subject, corpus = classifier(), Corpus.of(TREEBANK[:5])
    whole = lo.look(subject, corpus, ["importance"], progress=False)["importance"]
    counts = {lens: Interrupted(lens.finish, at=3 if lens is stopped else 0) for lens in (HeadMeans, Importance)}
    for lens, count in counts.items():
        monkeypatch.setattr(lens, "finish", count)
    options = {"batch_tokens": 1, "progress": False, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        lo.look(subject, corpus, ["importance"], **options)
    again = lo.look(subject, corpus, ["importance"], resume=True, **options)["importance"]
    assert_close(whole.data, again.data, "resumed", 1e-9)
    assert {lens: count.calls - (lens is stopped) for lens, count in counts.items()} == {HeadMeans: 5, Importance: 5}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_starts_afresh_takes_nothing_of_an_interrupted_one(tmp_path, monkeypatch):
    subject, corpus = classifier(), Corpus.of(TREEBANK[:3])
    options = {"batch_tokens": 1, "progress": False, "out": tmp_path / "run"}
    monkeypatch.setattr(Importance, "finish", Interrupted(Importance.finish, at=2))
    with pytest.raises(KeyboardInterrupt):
        lo.look(subject, corpus, ["importance"], **options)
    kept = tmp_path / ".run.unfinished" / "before-0.safetensors"
    assert kept.is_file()
    kept.write_bytes(b"damaged")
    with pytest.raises(UserError, match="is damaged"):
        lo.look(subject, corpus, ["importance"], resume=True, **options)
    assert lo.look(subject, corpus, ["importance"], **options)["importance"].provenance.texts == 3
