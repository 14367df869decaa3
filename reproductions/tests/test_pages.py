"""Every committed page is what the committed table of its cells says, and is short."""

import json
import re
from fnmatch import fnmatchcase

import pytest

import reproductions
from reproductions.frame import rows
from reproductions.frame.claims import VERDICTS
from reproductions.frame.index import SIGNS, evidence, index
from reproductions.frame.page import PAGES, Outcome, published
from reproductions.frame.settings import Settings
from reproductions.frame.study import ROOT, Study

WORDS = 1500


@pytest.fixture(scope="module", params=reproductions.STUDIES)
def outcome(request) -> Outcome:
    study = reproductions.find(request.param)
    return Outcome.of(study, study.finished(Settings(out=study.home, partial=True, seeds=study.seeds)))


def home(outcome: Outcome):
    return outcome.study.home


def test_every_cell_stands_in_the_table_and_on_the_page(outcome):
    """Files that lie beside the table were measured since; rows that the grid does not ask for are left over."""
    files = sorted(path.name for path in (home(outcome) / "cells").glob("*.json"))
    assert not files, f"cells that are not in the table yet: lorgnette reproduce {outcome.study.name} --partial"
    assert set(rows.read(home(outcome) / "cells.csv")) == {cell.key for cell in outcome.cells}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_cells_say(outcome, name):
    said = f"{home(outcome)}/{name} is older than its cells: lorgnette reproduce {outcome.study.name} --partial"
    assert (home(outcome) / name).read_text(encoding="utf-8") == outcome.page(name), said


def test_results_are_what_the_cells_say(outcome):
    written = json.loads((home(outcome) / "results.json").read_text(encoding="utf-8"))
    assert_same(json.loads(outcome.results()), written)


def assert_same(one, other):
    """To nine digits: the last bits of a mean differ between machines."""
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)
    else:
        assert one == other


def test_figures_are_there(outcome):
    for figure in outcome.figures:
        assert (home(outcome) / "figures" / f"{figure.name}.svg").is_file()
        assert figure.caption


def test_a_page_is_short(outcome):
    assert len((home(outcome) / "README.md").read_text(encoding="utf-8").split()) <= WORDS


def test_claims_have_an_id_a_source_a_test_and_a_verdict(outcome):
    study: Study = outcome.study
    ids = [claim.id for claim in outcome.claims]
    assert set(study.headline) <= set(ids)
    assert 1 <= len(study.headline) <= 15
    for claim in outcome.claims:
        assert re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", claim.id), claim.id
        assert claim.verdict in VERDICTS
        assert claim.estimate.over or claim.estimate.interval is None, claim.id
        assert (claim.published is None) == claim.ours, f"{claim.id} has a source, or is ours"
        assert claim.published is None or claim.published.source, claim.id
        assert claim.estimate.interval is None or claim.estimate.method, claim.id
    numbers = published(study.name)
    assert numbers["reference"]
    for entry in numbers.get("numbers", {}).values():
        assert entry["status"] in ("code", "paper", "seed", "derived", "memory")
        assert entry["source"]
        assert "value" in entry


def test_cosines_and_shares_have_intervals_between_their_ends(outcome):
    if outcome.study.name in ("fosse2023", "anisotropy_or_training", "stiff_or_sharp"):  # they measure little else
        for claim in outcome.claims:
            value, interval = claim.estimate.value, claim.estimate.interval
            if interval is not None and abs(value) <= 1:
                assert -1 <= interval[0] <= interval[1] <= 1, claim.id


def test_the_table_of_all_studies():
    assert (ROOT / "README.md").read_text(encoding="utf-8") == index()


def test_statements_name_claims_that_there_are():
    for entry in json.loads((ROOT / "statements.json").read_text(encoding="utf-8")):
        for study, signed in entry["claims"].items():
            written = json.loads((ROOT / study / "results.json").read_text(encoding="utf-8"))["claims"]
            named = {
                sign: {c["id"] for c in written for p in ps if fnmatchcase(c["id"], p)} for sign, ps in signed.items()
            }
            assert set(named) <= set(SIGNS), (study, list(named))
            for pattern in (one for patterns in signed.values() for one in patterns):
                assert any(fnmatchcase(claim["id"], pattern) for claim in written), (study, pattern)
            # A claim bears on a statement in one way.
            assert sum(map(len, named.values())) == len(set().union(*named.values())), (study, entry["statement"])


def test_a_claim_against_a_statement_counts_against_it(monkeypatch):
    verdicts = {"for-*": ["holds", "does not hold"], "against-*": ["holds", "cannot tell"], "about-*": ["holds"]}
    monkeypatch.setattr(
        "reproductions.frame.index._verdicts", lambda study, patterns: [(one, 1) for one in verdicts[patterns[0]]]
    )
    assert evidence({"x": {"supports": ["for-*"], "contradicts": ["against-*"]}}) == "1 for, 2 against, 1 undecided"
    assert evidence({"x": {"answers": ["about-*"]}}) == "1 holds"


def test_a_page_opens_with_its_answer_and_a_figure(outcome):
    page, answer = outcome.page("README.md"), outcome.answer()
    opening = " ".join(page.split("## Question")[0].split())
    assert f"## Answer {' '.join(answer.split())} ![" in opening
    assert 10 <= len(answer.split()) <= 120
    assert "![" not in page.split("## Question")[0].split("![", 2)[-1]  # one figure


PAGES_OF_ALL = ["README.md", *(f"{study}/{name}" for study in reproductions.STUDIES for name in PAGES)]


@pytest.mark.parametrize("page", PAGES_OF_ALL)
def test_numbers_are_in_one_style(page):
    """A minus is no hyphen, no zero is left out before a point, and one kind of space stands before %."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)|^ {4}.*$", "", text, flags=re.MULTILINE)
    assert not re.findall(r"[\s|(\[±]-\.?\d.{10}", prose)
    assert not re.findall(r".{10}[\s|(\[±−<>]\.\d", prose)
    assert not re.findall(r".{10}\d[^\d\u00a0,.–−]?%", prose)


@pytest.mark.parametrize("name", reproductions.WAITING)
def test_a_study_that_waits_can_be_run_and_shows_nothing_yet(name):
    study = reproductions.find(name)
    assert study.grid(Settings(out=study.home, seeds=study.seeds), {})
    assert not (study.home / "cells.csv").exists(), f"{name} has cells: move it to STUDIES"
    assert not (study.home / "README.md").exists()
