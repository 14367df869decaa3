"""What a reproduction writes: whole, the same every time, never over somebody else's files."""

import json
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

import reproductions as reproduce
from lorgnette.errors import UserError
from reproductions.frame import record
from reproductions.frame.record import Claim, Figure, Reproduction, Settings, Table


def outcome(settings: Settings, **changes) -> Reproduction:
    frame = pd.DataFrame({"head": ["1-2", "a|b"], "pairs": [17_443_296, 3], "ρ": [-0.12345678901234, None]})
    chart = alt.Chart(alt.Data(values=[{"x": 1, "y": 2}])).mark_point().encode(x="x:Q", y="y:Q")
    parts = {
        "name": "tiny",
        "title": "A tiny finding",
        "reference": "Somebody 1999.",
        "question": "Is it so?",
        "setup": ["Two heads."],
        "summary": ["It is so.", "But not always."],
        "tables": [Table("Heads", frame, "A note.")],
        "figures": [Figure("dots", chart, "One dot.")],
        "claims": [
            Claim(text="ρ < 0", ours=-0.1234, interval=(-0.2, -0.05), published=-0.69, verdict="holds", why="below 0")
        ],
        "provenance": record.origin(settings, "tiny", segments=2),
    }
    return Reproduction(**{**parts, **changes})


@pytest.fixture
def settings(tmp_path):
    return Settings(out=tmp_path / "tiny", seeds=(0, 1))


def test_the_folder_says_it_all(settings):
    folder = outcome(settings).write(settings.out)
    readme = (folder / "README.md").read_text()
    for text in (
        "# A tiny finding",
        "**Question.** Is it so?",
        "But not always.",
        "| ρ < 0 | -0.123 [-0.200, -0.050] | -0.690 | **holds** | below 0 |",
        "| a\\|b | 3 | – |",
        "| 1-2 | 17,443,296 | -0.123 |",
        "![dots](figures/dots.svg)",
        "    lorgnette reproduce tiny --seeds 0,1\n",
    ):
        assert text in readme
    document = json.loads((folder / "results.json").read_text())
    assert document["tables"][0]["columns"] == ["head", "pairs", "ρ"]
    assert document["tables"][0]["rows"] == [["1-2", 17_443_296, -0.12345678901234], ["a|b", 3, None]]
    assert document["claims"][0]["interval"] == [-0.2, -0.05]
    assert document["provenance"]["seeds"] == [0, 1]
    assert document["provenance"]["versions"]["torch"]
    assert (folder / "figures" / "dots.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_every_time_and_no_place_in_it(settings, tmp_path):
    elsewhere = Settings(out=tmp_path / "other", seeds=(0, 1), data="/secret/data", models="/secret/models", jobs=4)
    first, second = outcome(settings).write(settings.out), outcome(elsewhere).write(elsewhere.out)
    for path in (path for path in first.rglob("*") if path.is_file()):
        again = (second / path.relative_to(first)).read_bytes()
        assert path.read_bytes() == again
        assert b"secret" not in again


def test_written_whole_or_not_at_all(settings):
    outcome(settings).write(settings.out)
    (settings.out / "cells").mkdir()
    before = (settings.out / "README.md").read_bytes()
    broken = outcome(settings, summary=["Other words."], provenance={"bad": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        broken.write(settings.out)
    assert (settings.out / "README.md").read_bytes() == before
    outcome(settings, figures=[], summary=["Other words."]).write(settings.out)
    assert not list((settings.out / "figures").iterdir())
    assert (settings.out / "cells").is_dir()  # what others keep there stays


def test_somebody_elses_readme_is_not_replaced(settings):
    settings.out.mkdir()
    (settings.out / "README.md").write_text("mine")
    for refuse in (lambda: record.refuse_other_folder(settings.out), lambda: outcome(settings).write(settings.out)):
        with pytest.raises(UserError, match="no reproduction wrote"):
            refuse()
    assert (settings.out / "README.md").read_text() == "mine"


def test_a_quick_run_says_so(tmp_path):
    settings = Settings(out=tmp_path, quick=True)
    assert "Do not quote" in (outcome(settings).write(tmp_path / "q") / "README.md").read_text()
    assert settings.command("tiny") == "lorgnette reproduce tiny --quick --seeds 0"


def test_a_verdict_is_one_of_four():
    with pytest.raises(ValueError, match="must be one of holds"):
        Claim(text="", ours=None, verdict="probably")


def test_parts(settings):
    assert settings.part(("weights", "norms")) == ("weights", "norms")
    only = Settings(out=Path(), only="norm")
    with pytest.raises(UserError, match="Did you mean 'norms'"):
        only.part(("weights", "norms"))


@pytest.mark.parametrize("name", reproduce.STUDIES)
def test_published_numbers_have_their_source(name):
    if name not in ("kobayashi2020", "clark2019", "raganato2018"):
        return
    numbers = record.published(name)
    assert numbers["reference"]
    for entry in numbers["numbers"].values():
        assert entry["status"] in ("code", "paper", "seed", "derived", "memory")
        assert entry["source"]
        assert "value" in entry
