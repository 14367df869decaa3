"""A sample of `make fuzz`: hostile input is a right answer or one line, whatever the area."""

from pathlib import Path

import pytest
from fuzz.areas import AREAS, place_for_cases, run_cases
from fuzz.damage import changed, paths
from fuzz.trial import Case, answered, clocked, tried
from processes import run

CASES = 12


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, place_for_cases(tmp_path_factory.mktemp("fuzz")) as place:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield place


@pytest.mark.parametrize("area", sorted(set(AREAS) - {"calls"}))
def test_a_right_answer_or_one_line(place, area):
    outcomes = []
    run_cases(place, area, 1, CASES, outcomes.append)
    assert len(outcomes) >= CASES // 2
    wrong = [outcome for outcome in outcomes if outcome.kind not in ("right", "one line")]
    assert not wrong, "\n".join(f"{one.kind}: {one.what}\n{one.details}" for one in wrong)


def test_calls_with_hostile_values(tmp_path):
    """In a process of its own, without the checks of annotations that would stop wrong types before we do."""
    options = ["--only", "calls", "--cases", "80", "--jobs", "1", "--out", str(tmp_path)]
    ran = run("-m", "fuzz", *options, cwd=Path(__file__).parents[1])
    assert ran.returncode == 0, (tmp_path / "wrong.txt").read_text() or ran.stderr
    assert "| calls | 80 |" in ran.stdout


def test_the_fuzzer_sees_what_it_looks_for(place, tmp_path, monkeypatch):
    """A traceback, a hang and another number are counted as what they are."""
    look = ("look", place.model(), "-c", place.texts, "--dtype", "float64")
    assert tried(Case("", look), tmp_path).kind == "right"
    assert tried(Case("", ("look", place.model(), "-c", "@/none.txt")), tmp_path).kind == "one line"
    assert tried(Case("", look, judge=lambda *_: "other numbers"), tmp_path).kind == "silent change"
    monkeypatch.setattr("lorgnette.texts.corpus", lambda *_, **__: 1 / 0)
    assert tried(Case("", look), tmp_path).kind == "traceback"

    def endless(*_, **__):
        while True:
            pass

    monkeypatch.setattr("lorgnette.texts.corpus", endless)
    monkeypatch.setattr("fuzz.trial.CPU_SECONDS", 0.2)
    assert tried(Case("", look), tmp_path).kind == "hang"


def test_the_clock_is_put_back():
    with clocked():
        assert answered(["--version"]).out.startswith("lorgnette ")


def test_every_place_of_a_document_is_damaged():
    whole = {"a": [1, {"b": 2}], "c": None}
    assert set(paths(whole)) == {(), ("a",), ("a", 0), ("a", 1), ("a", 1, "b"), ("c",)}
    assert changed(whole, ("a", 1, "b"), 7, "set") == {"a": [1, {"b": 7}], "c": None}
    assert changed(whole, ("a", 0), 7, "remove") == {"a": [{"b": 2}], "c": None}
