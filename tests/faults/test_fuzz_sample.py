"""A sample of `make fuzz`: hostile input is a right answer or one line, whatever the area."""

import inspect
import re
from pathlib import Path

import pytest
from fuzz import calls
from fuzz.areas import AREAS, place_for_cases, run_cases
from fuzz.damage import changed, paths
from fuzz.trial import Case, answered, clocked, tried
from processes import run

import lorgnette as lo

CASES = 12


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, place_for_cases(tmp_path_factory.mktemp("fuzz")) as place:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield place


ALONE = {"calls": 80, "trainings": 10}
"""Areas of functions, with as many cases."""


@pytest.mark.parametrize("area", sorted(AREAS.keys() - ALONE))
def test_a_right_answer_or_one_line(place, area):
    outcomes = []
    run_cases(place, area, 1, CASES, outcomes.append)
    assert len(outcomes) >= CASES // 2
    wrong = [outcome for outcome in outcomes if outcome.kind not in ("right", "one line")]
    assert not wrong, "\n".join(f"{one.kind}: {one.what}\n{one.details}" for one in wrong)


@pytest.mark.parametrize("area", ALONE)
def test_functions_with_hostile_values(tmp_path, area):
    """In a process of its own, without the checks of annotations that would stop wrong types before we do."""
    options = ["--only", area, "--cases", str(ALONE[area]), "--jobs", "1", "--out", str(tmp_path)]
    ran = run("-m", "fuzz", *options, cwd=Path(__file__).parents[1])
    assert ran.returncode == 0, (tmp_path / "wrong.txt").read_text() or ran.stderr
    assert f"| {area} | {ALONE[area]} |" in ran.stdout


NOT_CALLED = {
    "attend": "transformers calls it, with what a model passes on",
    "corpora": "no argument", "explanations": "no argument", "families": "no argument", "lenses": "no argument",
    "train": "has an area of its own, trainings",
    "prune": "likewise",
    "tapped": "takes taps, which are programs",
    "vllm_calls": "reads what another program wrote: tests/bare/test_calls.py",
}  # fmt: skip


def test_every_function_gets_hostile_values(place):
    """One that is not in the list would never see any."""
    functions = {name for name in lo.__all__ if inspect.isfunction(getattr(lo, name))}
    called = {name.split()[0] for name in calls.functions(place)}
    assert functions - called == NOT_CALLED.keys()


OF_OUR_OBJECTS = {
    "Trace.compared", "Trace.of", "Trace.of_without", "Trace.over", "Trace.matrix", "Trace.overlay", "Comparison.of",
    "Corpus.some", "Corpus.identify", "Corpus.derived", "Plot.below_each_other", "Trace.of_calls",
}  # fmt: skip
"""Methods whose arguments are objects that Lorgnette itself makes; an overlay needs a picture too."""
BEHIND = {"known_stack": "Trace.pieces", "tokens": "Trace.pieces", "placed": "Attention[]", "get": "Results[]"}
"""Methods that others call with what they are given."""


def test_every_method_of_an_answer_gets_hostile_values(place):
    answers = (lo.Trace, lo.Attention, lo.Result, lo.Results, lo.Explanation, lo.Sources, lo.Corpus, lo.Plot, lo.Report,
               lo.Comparison, lo.Views, lo.Shard)  # fmt: skip
    methods = {
        f"{kind.__name__}.{name}"
        for kind in answers
        for name, method in inspect.getmembers(kind, lambda each: inspect.isfunction(each) or inspect.ismethod(each))
        if not name.startswith("_") and set(inspect.signature(method).parameters) - {"self", "cls"}
    }
    called = set(calls.functions(place))
    assert set(BEHIND.values()) <= called
    assert {name for name in methods - called if name.split(".")[1] not in BEHIND} == OF_OUR_OBJECTS


def test_slips_get_one_line():
    """`slips.py`, as a user would meet it: without beartype."""
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]
    ran = run("-m", "pytest", *options, "slips.py", cwd=Path(__file__).parent)
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) > 15


def test_every_odd_value_of_a_function(tmp_path):
    """A part of `make fuzz ONLY=arguments`, evenly spread over functions and values."""
    ran = run(
        "-m", "fuzz", "--only", "arguments", "--cases", "300", "--out", str(tmp_path), cwd=Path(__file__).parents[1]
    )
    assert ran.returncode == 0, (tmp_path / "wrong.txt").read_text() or ran.stderr
    assert "| **all** | 300 |" in ran.stdout


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
