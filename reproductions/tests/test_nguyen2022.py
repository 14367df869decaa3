"""Nguyen et al. 2022 on a few made-up posts: the whole way, and the shape that it looks for."""

import pytest
import torch
from made_cells import finished
from made_up import write_hatexplain, write_vectors

from lorgnette.errors import UserError
from lorgnette.texts import Example
from reproductions.frame.page import Outcome, published
from reproductions.frame.plausible import measured
from reproductions.frame.settings import Settings
from reproductions.nguyen2022 import STUDY, grid
from reproductions.nguyen2022.claims import claims

TINY = grid.Size(
    epochs=1,
    batch_size=16,
    strengths=(0.0, 0.02, 0.1),
    corpora=("hatexplain",),
    vectors={"glove-100": 100},
    draws=20,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_hatexplain(folder, {"train": 60, "val": 30, "test": 30})
    write_vectors(folder)
    return folder


def test_the_whole_way(data, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "QUICK", TINY)
    settings = Settings(quick=True, out=tmp_path / "nguyen2022", data=str(data), seeds=(0, 1))
    outcome = STUDY.reproduce(settings)
    folder = outcome.write(settings.out)
    labels = {"corpus": "hatexplain", "vectors": "glove-100", "strength": 0.1, "seed": 1}
    one = outcome.cells.one(**labels)
    assert one["plausibility"]["all"]["texts"] == 20  # two of three posts have marked words
    assert one["plausibility"]["all"]["marked"] == pytest.approx(0.25, abs=0.06)
    assert 0 < one["metrics"]["test"]["entropy"] <= 1
    written = {"README.md", "APPENDIX.md", "results.json", "figures", "cells.csv"}
    assert {path.name for path in folder.iterdir()} == written
    assert STUDY.reproduce(settings).results() == outcome.results()


def test_an_unknown_part_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no parts"):
        STUDY.reproduce(Settings(out=tmp_path, only="pages"))


def test_measured_against_loops():
    examples = [
        Example("a", "x y z", words=("x", "y", "z"), rationale=(1.0, 0.0, 0.0), extra={"part": "one"}),
        Example("b", "u v", words=("u", "v"), rationale=(0.0, 1.0), extra={"part": "two"}),
        Example("c", "w", words=("w",), rationale=(1.0,), extra={"part": "two"}),
    ]
    words = [torch.tensor(row, dtype=torch.float64) for row in ([0.6, 0.3, 0.1], [0.9, 0.1], [1.0])]
    found = measured(words, examples, 4)
    # Rescaled: 1, 0.4, 0 | 1, 0 | 0; marked: the first, the fifth and the sixth.
    whole = found["all"]
    assert whole["pooled"]["auprc"] == pytest.approx(1 / 3 * 1 / 2 + 2 / 3 * 3 / 6)
    assert whole["pooled"]["auroc"] == pytest.approx((0.5 + 1 + 1 + 0 + 0 + 0.5 + 0 + 0 + 0.5) / 9)
    assert whole["pooled"]["iou"] == pytest.approx(1 / 4)
    assert whole["per_instance"]["auroc"] == pytest.approx((1 + 0) / 2)  # the third text has no unmarked word
    assert whole["texts_with_unmarked_words"] == 2
    assert len(whole["draws"]["auprc"]) == 4
    assert set(found) == {"all", "one", "two"}
    assert found["two"]["texts"] == 2


def result(labels, peak=True, accuracy=None, entropy=None):
    """Plausibility that peaks at 0.02, or one that only falls; texts and seeds add a little noise."""
    strength = labels["strength"]
    level = 0.5 - strength + (0.05 if peak and strength > 0 else 0.0) + 0.001 * labels["seed"]
    draws = [level + 0.002 * (number % 5 - 2) for number in range(40)]
    pooled = {"auprc": level, "auroc": level + 0.1, "iou": 0.3}
    group = {"texts": 5, "marked": 0.3, "pooled": pooled, "per_instance": {"auprc": 0.5, "auroc": 0.6}}
    metrics = {
        "accuracy": 0.7 - strength / 10 if accuracy is None else accuracy,
        "macro_f1": 0.6,
        "entropy": 1 - 5 * strength if entropy is None else entropy,
    }
    groups = {"all": {**group, "draws": {"auprc": draws, "auroc": draws}}, "ham_part1(50words)": group}
    return {
        "metrics": {"test": metrics},
        "texts": {"train": 10, "validation": 5, "test": 5},
        "plausibility": groups if labels["corpus"] == "yelphat" else {"all": groups["all"]},
    }


def by_id(cells):
    return {claim.id: claim for claim in claims(cells)}


@pytest.mark.parametrize(("peak", "rises"), [(True, "holds"), (False, "does not hold")])
def test_the_shape_is_found_where_it_is_and_not_where_it_is_not(peak, rises):
    outcome = Outcome.of(STUDY, finished(STUDY, lambda labels: result(labels, peak)))
    judged = {claim.id: claim for claim in outcome.claims}
    up, down = judged["esnli-glove-100-auprc-rises"], judged["esnli-glove-100-auprc-falls"]
    assert (up.verdict, down.verdict) == (rises, "holds")
    assert up.estimate.value == pytest.approx(0.035 if peak else -0.015)
    assert down.estimate.value == pytest.approx(-0.085)
    # Made-up noise is that of the seed, and models of a seed are paired: none of it is left in a difference.
    assert (up.estimate.low, up.estimate.high) == pytest.approx((up.estimate.value, up.estimate.value))
    assert (up.estimate.method, up.estimate.n) == ("t", 3)
    assert {judged[f"{c}-glove-100-accuracy-steady"].verdict for c in ("esnli", "hatexplain", "yelphat")} == {"holds"}
    assert {"esnli-published", "others-published", "yelphat-random-300"} <= {table.id for table in outcome.tables}
    assert len(outcome.facts["both"]) == (6 if peak else 0)
    assert up.published.spread == 0.07
    none = judged["hatexplain-glove-100-auprc-falls-from-none"]
    assert none.published.value == pytest.approx(0.489 - 0.6095)
    assert none.verdict == "holds"


def test_published_columns_have_one_number_for_each_strength():
    printed = published("nguyen2022")
    for name in ("esnli", "esnli_thesis", "hatexplain", "yelphat"):
        entry = printed[name]
        assert entry["status"] in ("code", "paper")
        assert all(len(column) == len(entry["lambda"]) for column in entry.values() if isinstance(column, list))


def test_accuracy_that_moves_and_a_classifier_that_learnt_nothing_are_told():
    def at_chance(labels):
        broken = labels["corpus"] == "esnli" and labels["strength"] == 0.1
        return result(labels, accuracy=0.34 if broken else None, entropy=0.95 if broken else None)

    outcome = Outcome.of(STUDY, finished(STUDY, at_chance))
    judged = {claim.id: claim for claim in outcome.claims}
    steady = judged["esnli-glove-100-accuracy-steady"]
    assert steady.verdict == "does not hold"
    assert steady.estimate.value == pytest.approx(-0.36)
    # Like is compared with like: the printed AUROC at 0.01 and 0.02 together against 0, and at 0.1 against these.
    fall = judged["esnli-glove-100-auroc-falls"]
    assert fall.published.value == pytest.approx(0.6997 - (0.7422 + 0.7331) / 2)
    assert fall.verdict == "cannot tell"  # what has learnt nothing explains nothing
    assert fall.undecided
    places = {place["key"]: place for place in outcome.facts["places"]}
    assert places["esnli-glove-100"]["collapsed"]
    assert places["esnli-glove-100"]["unsharpened"]
    assert not places["hatexplain-glove-100"]["collapsed"]


def test_noise_of_accuracy_is_not_called_still():
    noisy = finished(STUDY, lambda labels: result(labels, accuracy=0.7 + 0.2 * labels["seed"] * labels["strength"]))
    assert by_id(noisy)["hatexplain-glove-100-accuracy-steady"].verdict == "cannot tell"


def test_nothing_is_said_of_a_place_where_a_run_is_missing():
    lacking = {"corpus": "esnli", "vectors": "glove-100", "strength": 0.05, "seed": 2}
    judged = by_id(finished(STUDY, lambda labels: None if labels == lacking else result(labels)))
    assert len(judged) == 37
    assert not any(id.startswith("esnli-glove-100") for id in judged)
