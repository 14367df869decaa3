"""A lens of an installed package gets what ours get: title, chapter, figures, findings, comparison and cards."""

import sys
from textwrap import dedent

import pytest
from tiny import EXAMPLES, bert

import lorgnette as lo
from lorgnette.figures.lens_report import FUNCTION
from lorgnette.reporting import Comparison, figures_of, findings
from lorgnette.reporting.atlas import atlas
from lorgnette.reporting.contents import in_chapters

LENS = """
    from lorgnette.lens.weights.lens import Weights

    class Doubt(Weights):
        name = "doubt"
        summary = "how unsure each head is"
"""
REPORT = """
    import altair as alt

    from lorgnette.figures.finding import Finding
    from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport, Measure
    from lorgnette.figures.variables import variable_figure

    def findings(result):
        yield Finding("Heads have a mean peak of {mean:.2f}.", {"mean": float(result.data["peak"].mean())})

    REPORT = LensReport(
        title="How unsure heads are",
        chapter=FUNCTION,
        figures=lambda result: [variable_figure(result, "peak", "Largest weight")],
        findings=findings,
        compared=(Compared("peak", "largest weight"),),
        cards=lambda result: [Measure("doubt", "one minus the largest weight", 1 - result.data["peak"], rank=9)],
    )
"""


@pytest.fixture(params=["folder", "file"])
def installed(request, tmp_path, monkeypatch):
    """A package on the path with its entry point: lens and report in two files, or in one."""
    name = f"doubting_{request.param}"
    package = tmp_path / name
    package.mkdir()
    package.joinpath("__init__.py").touch()
    if request.param == "folder":
        package.joinpath("lens.py").write_text(dedent(LENS))
        package.joinpath("report.py").write_text(dedent(REPORT))
    else:
        package.joinpath("lens.py").write_text(dedent(LENS) + dedent(REPORT))
    meta = tmp_path / f"{name}-1.0.dist-info"
    meta.mkdir()
    meta.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    meta.joinpath("entry_points.txt").write_text(f"[lorgnette.lenses]\ndoubt = {name}.lens:Doubt\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


def test_a_plug_in_lens_has_a_room_too(installed):
    assert "doubt" in lo.lens.names()
    lens = lo.lens.get("doubt")
    assert (f"{installed}.report" in sys.modules) is False, "a lens is loaded without its report"
    runs = [
        lo.look(bert(seed=seed), EXAMPLES, [lens, "weights"], progress=False)
        for lens, seed in ((lens, 0), ("doubt", 1))
    ]
    result = runs[0]["doubt"]
    assert list(in_chapters(runs[0])[FUNCTION]) == ["doubt"]
    assert [figure.title for figure in figures_of(result)] == ["Largest weight"]
    peak = result.data["peak"]
    assert findings({"doubt": result})[0].numbers == {"mean": peak.mean().item()}
    card = atlas(runs[0])[0]
    fact = next(fact for fact in card.facts if fact.name == "doubt")
    assert fact.value == 1 - peak.sel(stack=card.stack, layer=card.layer, head=card.head).item()
    html = lo.Report(runs[0]).html()
    assert '<option value="doubt" selected>' in html, "cards are sorted by the measure of the highest rank"
    assert "How unsure heads are" in html
    compared = Comparison(*runs)
    assert set(compared.differences().results["doubt"].data.data_vars) >= {"peak", "peak_se"}
    assert "mass" not in compared.differences().results["doubt"].data
    assert any(finding.text.startswith("Largest weight: ") for finding in compared.findings())


def test_a_lens_without_a_report_gets_the_default():
    report = lo.lens.report_of("nobody knows it")
    assert report.title == "nobody knows it"
    assert report.compared is None


@pytest.mark.parametrize("name", lo.lens.OURS)
def test_our_lenses_load_without_their_reports(name):
    report = lo.lens.OURS[name].replace(".lens:", ".report:").partition(":")[0]
    assert lo.lens.report_of(name) is sys.modules[report].REPORT
    assert lo.lens.find(name).name == name
