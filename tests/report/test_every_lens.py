"""Whatever lens, whatever kind of model: its result can be put on a page."""

import pytest
from subjects import EXAMPLES, MAKERS, classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.report import figures_of, findings


@pytest.mark.parametrize("maker", [*MAKERS.values(), classifier])
def test_every_lens_has_figures(maker):
    subject, shown = maker(), {}
    for name in lo.lenses.names():
        try:
            shown |= lo.look(subject, EXAMPLES, [name], progress=False)
        except UserError:  # a lens for another kind of model says so, and is tested elsewhere
            continue
    assert {"weights", "norms", "distances"} <= set(shown)
    results = lo.Results(shown)
    for name, result in results.items():
        assert figures_of(result), name
    html = lo.Report(results).html()
    assert html.count("<svg") == sum(len(figures_of(result)) for result in results.values())
    assert "nan" not in " ".join(finding.text for finding in findings(results))
