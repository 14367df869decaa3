"""The share decides: one signal of each lens, leads in one unit for all shares, claims on planted crossings."""

import json

import numpy as np
import pytest
from made_cells import finished
from tiny import EXAMPLES, classifier, marian

from lorgnette.lens.signals import signals_in
from lorgnette.texts import Example
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Settings
from reproductions.share_decides import STUDY
from reproductions.share_decides.claims import claims
from reproductions.share_decides.grid import SHARES, SIGNALS
from reproductions.share_decides.measure import ranked
from reproductions.share_decides.readings import Readings


@pytest.mark.parametrize("make", [classifier, marian])
def test_heads_are_ranked_by_three_signals_and_no_others(make):
    texts = [Example(e.id, e.text, label=n % 2, target=e.text) for n, e in enumerate(EXAMPLES[:4])]
    found = signals_in(ranked(make(), texts, ranking=3, gating=4, gate_steps=2, gate_seeds=1))
    assert sorted(found) == sorted(SIGNALS)
    assert all(bool(np.isfinite(one.value).any()) for one in found.values())


LOST = {"gradient": [0.0, 1.0, 3.0], "facilitation": [1.0, 1.0, 2.0], "output_length": [0.5, 1.0, 2.5],
        "random": [0.1, 2.0, 4.0]}  # fmt: skip


def made(labels):
    """A planted crossing: the gradient loses one nat less at first, one more at last."""
    wobble = 0.01 * len(labels["model"] + labels["corpus"])
    removed = {name: {"loss": [loss + wobble * at for at, loss in enumerate(lost)]} for name, lost in LOST.items()}
    removed["random"] = {"loss": LOST["random"]}
    stacks = ("encoder", "decoder", "cross") if labels["corpus"] == "multi30k" else ("encoder",)
    return {
        "texts": {"ranking": 9, "gating": 9, "test": 9},
        "intact": {"loss": 0.5, **({} if len(stacks) > 1 else {"accuracy": 0.8})},
        "stacks": {stack: {"removed": removed, "draws": [[0.1] * 5] * 3} for stack in stacks},
    }


def test_leads_are_in_what_random_sets_of_half_of_the_heads_lose():
    r = Readings(finished(STUDY, made))
    for place in r.places:
        assert r.lead(place, "gradient", "facilitation", SHARES[0]) == pytest.approx(0.5)
        assert r.lead(place, "gradient", "facilitation", SHARES[2]) == pytest.approx(-0.5)
        assert r.saved(place, "gradient", SHARES[0]) == pytest.approx(1.0)


def test_a_planted_crossing_is_found_and_the_page_says_so():
    found = {claim.id: claim for claim in claims(finished(STUDY, made))}
    assert {name: found[name].verdict for name in ("quarter", "three-quarters", "crossing")} == dict.fromkeys(
        ("quarter", "three-quarters", "crossing"), "holds"
    )
    assert found["half"].estimate.value == pytest.approx(0)
    assert set(STUDY.headline) <= set(found)


def test_a_study_with_some_cells_alone_makes_its_page(tmp_path):
    some = finished(STUDY, lambda labels: made(labels) if labels["seed"] == 0 else None, out=tmp_path)
    assert len(some.missing) == 14
    assert "Incomplete" in Outcome.of(STUDY, some).page("README.md")


def test_quick_end_to_end(tiny_shelf, tmp_path):
    folder = tmp_path / "data" / "imdb"
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        rows = [{"id": f"{split}{n}", "text": EXAMPLES[n % 5].text, "label": n % 2, "rating": 5} for n in range(100)]
        (folder / f"imdb_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = {"data": str(tmp_path / "data"), "models": str(tiny_shelf / "models"), "device": "cpu"}
    outcome = STUDY.reproduce(Settings(quick=True, seeds=(0,), out=tmp_path / "share_decides", **folders))
    (cell,) = outcome.cells
    assert set(cell.result["stacks"]["encoder"]["removed"]) == {*SIGNALS, "random"}
    assert "Do not quote" in outcome.page("README.md")
