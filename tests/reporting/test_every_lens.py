"""Whatever lens, whatever kind of model: its result can be put on a page."""

import pytest
from tiny import EXAMPLES, classifier, marian

import lorgnette as lo
from lorgnette.reporting import figures_of, findings

pytestmark = pytest.mark.usefixtures("few_steps")


@pytest.mark.parametrize("maker", [classifier, marian])
def test_every_lens_has_figures(maker):
    results = lo.look(maker(), EXAMPLES, "all", progress=False)
    assert {"weights", "norms", "distances", "agreement"} <= set(results)
    for name, result in results.items():
        figures = figures_of(result)
        assert figures, name
        for figure in figures:
            assert figure.chart.to_dict()  # Altair checks it against its schema
            assert len(figure.table)
            assert len(figure.data)
    assert "nan" not in " ".join(finding.text for finding in findings(results))
    html = lo.Report(lo.Results({name: results[name] for name in ("weights", "distances")})).html()
    assert html.count("<svg") == html.count("<figure")
