"""Nguyen et al. 2022 on a few made-up posts: the whole way, and the shape that it looks for."""

import json

import pytest
import torch
from made_up import write_hatexplain, write_vectors

from lorgnette.corpora import Example
from lorgnette.errors import UserError
from reproductions.frame.plausible import measured
from reproductions.frame.record import Settings, published
from reproductions.nguyen2022 import answers, grid, page, reproduce, runs, shape

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
    outcome = reproduce(settings)
    folder = outcome.write(settings.out)
    document = json.loads((folder / "results.json").read_text())
    one = document["provenance"]["runs"]["hatexplain-glove-100-lambda0.1-seed1"]
    assert one["plausibility"]["all"]["texts"] == 20  # two of three posts have marked words
    assert one["plausibility"]["all"]["marked"] == pytest.approx(0.25, abs=0.06)
    assert 0 < one["metrics"]["test"]["entropy"] <= 1
    assert "HateXplain, glove-100" in (folder / "README.md").read_text()
    assert reproduce(settings).to_json() == outcome.to_json()


def test_an_unknown_part_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no parts"):
        reproduce(Settings(out=tmp_path, only="pages"))


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


def made_up(peak: bool) -> runs.Outcome:
    """Plausibility that peaks at 0.02, or one that only falls; texts and seeds add a little noise."""
    size = grid.Size(corpora=("hatexplain", "esnli"), vectors={"glove-100": 100}, draws=40)
    seeds = (0, 1, 2)
    results = {}
    for run in grid.runs(size, seeds):
        level = 0.5 - run.strength + (0.05 if peak and run.strength > 0 else 0.0) + 0.001 * run.seed
        draws = [level + 0.002 * (number % 5 - 2) for number in range(40)]
        pooled = {"auprc": level, "auroc": level + 0.1, "iou": 0.3}
        group = {"texts": 5, "marked": 0.3, "pooled": pooled, "per_instance": {"auprc": 0.5, "auroc": 0.6}}
        metrics = {"accuracy": 0.7 - run.strength / 10, "macro_f1": 0.6, "entropy": 1 - 5 * run.strength}
        results[run.key] = {
            "metrics": {"test": metrics, "validation": metrics},
            "best": {},
            "parameters": {},
            "seconds": {},
            "device": "cpu",
            "versions": {},
            "corpus_fingerprint": "0",
            "texts": {"train": 10, "validation": 5, "test": 5},
            "plausibility": {"all": {**group, "draws": {"auprc": draws, "auroc": draws}}},
        }
    return runs.Outcome(size, seeds, results)


def test_the_shape_is_found_where_it_is_and_not_where_it_is_not(tmp_path):
    for peak, expected in ((True, "holds"), (False, "does not hold")):
        outcome = made_up(peak)
        up, down = (step(outcome, "esnli", "glove-100", "auprc") for step in (shape.rise, shape.fall))
        assert up.value == pytest.approx(0.035 if peak else -0.015)
        assert down.value == pytest.approx(-0.085)
        assert up.interval[0] < up.value < up.interval[1]
        assert shape.verdict(up, down) == expected
        made = page.page_of(Settings(out=tmp_path / "x"), outcome)
        assert f"Peak, then fall: {expected}" in "\n".join(made.summary)
        assert any(table.title.startswith("e-SNLI beside") for table in made.tables)
        moves = [claim for claim in made.claims if "accuracy moves" in claim.text]
        assert {claim.verdict for claim in moves} == {"holds"}


def test_too_little_to_tell():
    nothing = shape.Step(0.01, (-0.01, 0.03))
    assert shape.verdict(nothing, shape.Step(-0.1, (-0.2, -0.05))) == "cannot tell"


def test_published_columns_have_one_number_for_each_strength():
    told = published("nguyen2022")
    for name in ("esnli", "esnli_thesis", "hatexplain", "yelphat"):
        entry = told[name]
        assert entry["status"] in ("code", "paper")
        assert all(len(column) == len(entry["lambda"]) for column in entry.values() if isinstance(column, list))


def test_accuracy_that_moves_and_a_classifier_that_learnt_nothing_are_told():
    outcome = made_up(True)
    for key, one in outcome.results.items():
        if key.startswith("esnli") and "lambda0.1-" in key:
            one["metrics"] = {"test": {"accuracy": 0.34, "macro_f1": 0.2, "entropy": 0.95}}
    strength, move, verdict = answers.accuracy_moves(outcome, "esnli", "glove-100")
    assert (strength, verdict) == (0.1, "does not hold")
    assert move.mean == pytest.approx(-0.36)
    told = published("nguyen2022")
    fall = next(
        claim for claim in answers.claims(outcome, told) if "e-SNLI, glove-100: pooled AUROC falls" in claim.text
    )
    assert "learnt nothing (accuracy 0.340 of 3 classes)" in fall.why
    assert "hardly sharpened attention (H 1.00 → 0.95)" in fall.why
    # Like is compared with like: the printed AUROC at 0.01 and 0.02 together against 0, and at 0.1 against these.
    assert fall.published == pytest.approx(0.6997 - (0.7422 + 0.7331) / 2)
    said = " ".join(answers.summary(outcome, told))
    assert "e-SNLI, glove-100 (to a classifier at chance)" in said
    assert "“holds” in 2, “does not hold” in 0, “cannot tell” in 0" in said


def test_noise_of_accuracy_is_not_called_still():
    outcome = made_up(True)
    for key, one in outcome.results.items():
        one["metrics"]["test"] = {**one["metrics"]["test"], "accuracy": 0.7 + 0.02 * int(key[-1])}
    assert answers.accuracy_moves(outcome, "hatexplain", "glove-100")[2] == "cannot tell"
