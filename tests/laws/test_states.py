"""Every lens: a corpus split over two processes, one of them interrupted and resumed, gives what one pass gives."""

from dataclasses import replace

import pytest
import torch
from test_lenses import NEEDS, TREES, made
from tiny import EXAMPLES, MAKERS, PROMPTS, TREEBANK, classifier

from lorgnette import lens as lenses
from lorgnette.lens import base
from lorgnette.lens.probes.structural import ProbedTrees
from lorgnette.looking.driver import looks
from lorgnette.looking.look import look
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.resume import Keeper
from lorgnette.looking.texts import Analysed
from lorgnette.testing import assert_close, run_lens

pytestmark = pytest.mark.usefixtures("few_steps")

BROKEN = tuple(replace(TREEBANK[0], id=f"loop {n}", heads=(2, 1, 0, 6, 6, 3, 3)) for n in range(3))
"""Heads that are no tree: words 1 and 2 are each other's."""


def made_from(results):
    lens = lenses.get("agreement", draws=20)
    lens.take(results)
    return lens


def ready(make, subject, texts):
    """A lens with what it needs to know before its first batch."""
    lens = make()
    lens.bind(subject)
    if looks(lens) and lens.needs():
        lens.take(look(subject, texts, list(lens.needs()), progress=False))
    return lens


def resumed(lens, make, subject, texts, folder):
    """The states as an interrupted run leaves them, in a new lens."""
    keeper = Keeper(folder, {}, ProcessRank())
    analysed = Analysed()
    analysed.numbers.add([2, 1])
    keeper.keep([lens], analysed)
    again = ready(make, subject, texts)
    assert len(keeper.restore([again])[0].numbers) == 2
    return again


def check(make, subject, texts, folder, monkeypatch):
    batches = [subject.encode(list(texts[at : at + 2])) for at in range(0, len(texts), 2)]
    whole = run_lens(ready(make, subject, texts), subject, batches).compute()
    first = run_lens(ready(make, subject, texts), subject, batches[:1])
    first = run_lens(resumed(first, make, subject, texts, folder), subject, batches[2:])
    second = run_lens(ready(make, subject, texts), subject, batches[1:2])
    parts = [lens.states.tensors() for lens in (first, second)]
    with monkeypatch.context() as patch:  # what torch.distributed would give, and the code that takes it in
        patch.setattr(base, "gathered", lambda states, group=None: parts)
        first._sync_dist()
    both = first.compute()
    assert_close(whole.data, both.data, "split and resumed", 1e-9)
    assert whole.data.attrs == both.data.attrs
    return whole, first


@pytest.mark.parametrize("name", sorted(lenses.OURS))
def test_split_and_resumed_as_one_pass(name, tmp_path, monkeypatch):
    kinds = NEEDS.get(name, {"bert"}) or {"classifier"}
    subject = classifier() if "classifier" in kinds else MAKERS[sorted(kinds)[0]]()
    texts = (*TREEBANK, *BROKEN) if name in (*TREES, "rationales") else PROMPTS if name == "sources" else EXAMPLES
    if name == "agreement":
        results = look(subject, texts, ["weights", "norms"], progress=False)
        check(lambda: made_from(results), subject, texts, tmp_path, monkeypatch)
        return
    whole, _ = check(lambda: made(name), subject, texts, tmp_path, monkeypatch)
    if name in ("trees", "relations"):
        assert whole.data.attrs["skipped"] == "loop 0, loop 1, loop 2"


def test_the_structural_probe_trains_on_the_sentences_of_all(tmp_path, monkeypatch):
    texts, subject = (*TREEBANK, *BROKEN), MAKERS["bert"]()
    whole, lens = check(lambda: ProbedTrees(40), subject, texts, tmp_path, monkeypatch)
    assert int(whole.data["texts"]) == 6
    assert int(whole.data["left_out"]) == 4  # one word alone, three that are no tree
    alone = run_lens(ProbedTrees(40), subject, [subject.encode(list(texts))])
    alone.compute()
    assert [tree.id for tree in lens.trees] == [tree.id for tree in alone.trees]
    for one, other in zip(lens.trees, alone.trees, strict=True):
        torch.testing.assert_close(one.vectors, other.vectors, rtol=1e-9, atol=1e-9)
        assert torch.equal(one.distances, other.distances)
