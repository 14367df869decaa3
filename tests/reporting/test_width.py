"""Figures for the column of a paper: they fit, their letters stay readable, and one can be asked for by name."""

import re

import pytest
from made import norms, weights
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.figures.drawing import drawn
from lorgnette.reporting import figures, figures_of
from lorgnette.results import Results


def sizes(svg):
    """Width in points, and the sizes of the letters."""
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)[1])
    return width, {float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg)}


def test_figures_fit_and_can_be_read():
    drawings = [(one.name, one.chart) for result in (weights(6, 12), norms(6, 12)) for one in figures_of(result)]
    assert len({name for name, _ in drawings} & {"mass", "confidence", "categories"}) == 3
    for name, chart in drawings:
        points, letters = sizes(drawn(chart, "svg", width="column").decode())
        assert points <= 240.1, name
        assert min(letters) >= 7, name
        assert max(letters) <= 10, name


def test_pdf_and_png_fit_too():
    (chart,) = [one.chart for one in figures_of(weights(6, 12)) if one.name == "confidence"]
    pdf = drawn(chart, "pdf", width="column")
    assert float(re.search(rb"MediaBox ?\[0 0 ([\d.]+)", pdf)[1]) <= 241
    png = drawn(chart, "png", width="column")
    assert int.from_bytes(png[16:20], "big") <= 241 * 300 / 72


def test_stacked_panels_name_their_axes_outside():
    (chart,) = [one.chart for one in figures_of(weights(6, 12)) if one.name == "mass"]
    wide, narrow = (drawn(chart, "svg", width=width).decode() for width in (900, "column"))
    rows = narrow.count(">layer</text>")
    assert rows > wide.count(">layer</text>") >= 1  # more rows of panels, each with its axis


def test_one_figure_by_name(tmp_path):
    run = Results([weights(), norms()])
    (path,) = figures(run, tmp_path, "svg", only="weights-confidence", width="page")
    assert path.name == "weights-confidence.svg"
    with pytest.raises(UserError, match=r"no figure 'weights-confidense'. Did you mean 'weights-confidence'"):
        figures(run, tmp_path, "svg", only="weights-confidense")
    for wrong in ("colum", "nan", 20, "-3"):
        with pytest.raises(UserError, match="points"):
            figures(run, tmp_path, "svg", width=wrong)
    run.save(tmp_path / "run")
    done = CliRunner().invoke(
        app, ["report", str(tmp_path / "run"), "--figure", "norms-norm_share", "--width", "column"]
    )
    assert done.exit_code == 0, done.output
    assert [file.name for file in (tmp_path / "run" / "figures").iterdir()] == ["norms-norm_share.pdf"]
    with pytest.raises(UserError, match="for paper"):
        lo.Results.load(tmp_path / "run")["weights"].plot("confidence").save(tmp_path / "a.html", width="column")
