"""`lorgnette report`, and the page at the end of `look`."""

import pytest
from typer.testing import CliRunner, Result

from lorgnette.cli.app import app


def lorgnette(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "texts.txt").write_text("The cat sat.\nA dog, perhaps.\n<script>alert(1)</script>\n", encoding="utf-8")
    done = lorgnette("look", "minilm", "-c", folder / "texts.txt", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    assert str(folder / "run" / "report.html") in done.stdout
    return folder / "run"


def test_look_ends_with_a_page(run):
    html = (run / "report.html").read_text(encoding="utf-8")
    assert "72 heads over 3 texts" in html
    assert html.count("<script") == 2  # ours, and the example texts
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in html


def test_report_writes_the_same_page_and_figures(run):
    before = (run / "report.html").read_text(encoding="utf-8")
    done = lorgnette("report", run, "--figures", "svg")
    assert done.exit_code == 0, done.output
    page, *drawings = done.stdout.splitlines()
    assert page == str(run / "report.html")
    assert (run / "report.html").read_text(encoding="utf-8") == before
    assert str(run / "figures" / "weights-confidence.svg") in drawings


def test_report_elsewhere(run, tmp_path):
    done = lorgnette("report", run, "--out", tmp_path / "bert.html")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'bert.html'}\n")


def test_an_unknown_format_is_one_line_and_nothing_is_written(run, tmp_path):
    done = lorgnette("report", run, "--out", tmp_path / "bert.html", "--figures", "gif")
    assert done.exit_code == 1
    assert done.stderr.startswith("lorgnette: Figures cannot be written as 'gif'.")
    assert list(tmp_path.iterdir()) == []
