"""The demo, made small: it trains, looks twice, writes one page, and can be run again."""

import pytest
from typer.testing import CliRunner

from lorgnette import demo
from lorgnette.cli.app import app
from lorgnette.reporting import findings
from lorgnette.results import Results
from lorgnette.training.demo import DEMO


@pytest.fixture
def small(monkeypatch):
    """One epoch on few texts: what is tested here is not what the classifier learns."""
    for name, value in {"epochs": 1, "limit": 64, "test_limit": 20}.items():
        monkeypatch.setitem(DEMO, name, value)
    monkeypatch.setattr(demo, "REVIEWS", 10)
    monkeypatch.setattr(demo, "LENSES", ("weights",))
    monkeypatch.setattr(demo, "EXPLAINED", ("rationales",))
    english = demo.english().take(6)
    monkeypatch.setattr(demo, "english", lambda: english)


def test_the_demo(small, tmp_path):
    out = tmp_path / "demo"
    done = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"The report: {out / 'report.html'}"
    html = (out / "report.html").read_text(encoding="utf-8")
    overrides = DEMO["overrides"]
    for name, heads in (("minilm", 72), ("classifier", overrides["layers"] * overrides["heads"])):
        results = Results.load(out / "runs" / name)
        assert results["weights"].provenance.command == f"lorgnette demo --out {out}"
        assert int(results["weights"].data["confidence"].notnull().sum()) == heads
        assert f"{heads} heads over" in html
        assert name in done.stdout
    assert "of the held-out ones are classified right" in html
    assert "agrees best with the rationales: its top" in html  # planted: nobody marked it
    assert "Heads at work" in html
    for finding in findings(results):
        assert finding.text[:30] in done.stdout

    again = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert again.exit_code == 0, again.output


def test_without_the_extra_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr("lorgnette.model_names.PACKAGED", {"minilm": ("no_such_package_here", "model")})
    monkeypatch.delenv("LORGNETTE_MODELS", raising=False)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert done.exit_code == 1
    assert done.stderr.startswith("lorgnette: The model 'minilm' comes with an optional package: pip install")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "demo").exists()


def test_the_english_is_varied_and_fits():
    texts = list(demo.english())
    paragraphs = texts[: -demo.PLANTED_SHARE]
    assert len(paragraphs) == 50
    assert len({example.id for example in texts}) == len({example.text for example in texts}) == len(texts)
    assert all(15 <= len(example.text.split()) <= 80 for example in paragraphs)
