"""The bench of rankings: its numbers against slow ones, and that it goes on where it stopped."""

import json

import pytest
import torch
import torch.nn.functional as F
from test_planted_rankings import HEADS, SITE, reviews, watched

from benchmarks import head_ranking
from benchmarks.head_ranking import MATCHED, ONE_BY_ONE, RANDOM, SHARES, WHOLE, Cell, Study, measure
from benchmarks.head_ranking_table import table
from lorgnette.subject.knockout import Knockout


@pytest.fixture(scope="module")
def study():
    return Study(watched(3, 0), reviews(99, 24))


def test_slopes_and_changes_are_those_of_each_text(study):
    examples = reviews(5, 6)
    (batch,) = study.collated(examples)
    labels = torch.tensor([example.label for example in batch.examples])

    def losses(taps=()):
        with torch.no_grad(), study.subject.tapped(*taps):
            return F.cross_entropy(study.subject.run(batch).logits, labels, reduction="none")

    slow = torch.stack([losses([Knockout({SITE: [head]})]) - losses() for head in range(HEADS)], -1)
    torch.testing.assert_close(study.changes([batch]).float(), slow, atol=1e-5, rtol=1e-4)
    slopes, step = study.slopes([batch]), 1e-2

    class Scaled(Knockout):
        def context(self, call, context):
            return torch.cat([context[:, :3], context[:, 3:4] * (1 - step), context[:, 4:]], 1)

    by_steps = (losses() - losses([Scaled({})])) / step
    torch.testing.assert_close(slopes[:, 3].float(), by_steps, atol=2e-3, rtol=0.05)


def test_everything_is_measured_once(study, tmp_path, monkeypatch):
    file, options = tmp_path / "planted.json", {"texts": 8, "seeds": 2, "draws": 4}
    about = {"model": "planted", "corpus": "reviews", "heads": HEADS}
    measure(Cell(file, about), study, reviews(1), **options)
    accuracy = json.loads(file.read_text())["accuracy"]
    assert accuracy[WHOLE]["0.0"] == [1.0]
    assert {len(accuracy[label][str(share)]) for label in (RANDOM, MATCHED) for share in SHARES} == {4}
    assert {len(values) for label, each in accuracy.items() if label not in (WHOLE, RANDOM, MATCHED)
            for values in each.values()} == {2}  # fmt: skip
    assert len(accuracy) == 14
    assert ONE_BY_ONE in accuracy
    assert f"| {RANDOM} | +0.000 | +0.000 | +0.000 |" in table(tmp_path)
    monkeypatch.setattr(Study, "accuracy", lambda *_: pytest.fail("measured again"))
    measure(Cell(file, about), study, reviews(1), **options)
    with pytest.raises(pytest.fail.Exception):
        measure(Cell(file, {**about, "heads": 3}), study, reviews(1), **options)


def test_matched_sets_have_as_many_heads_in_each_layer(study):
    like = [(SITE, 1), (SITE, 2), (SITE, 6)]
    sets = {tuple(head_ranking.matched(study.heads, like, seed)) for seed in range(6)}
    assert {len(one) for one in sets} == {3}
    assert len(sets) > 1
