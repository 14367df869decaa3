"""Two runs: the differences and their intervals are those of the numbers, and runs that do not match are refused."""

import numpy as np
import pytest
from made import SCRIPT, norms, plugin, weights
from subjects import TREEBANK, classifier
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.lenses.roles.report import changed_roles
from lorgnette.report import Comparison
from lorgnette.report.compare import differences
from lorgnette.results import Result, Results


@pytest.fixture(scope="module")
def runs():
    lenses = ["weights", "norms", "geometry", "roles", "importance"]
    return [lo.look(classifier(seed=seed), TREEBANK, lenses, progress=False) for seed in (0, 1)]


def test_differences_and_their_intervals(runs):
    found = differences(*runs).results["weights"].data
    old, new = (run["weights"].data for run in runs)
    for layer in (1, 2, 3):
        for head in (1, 2, 3, 4):
            at = {"stack": "encoder", "layer": layer, "head": head}
            value = (new["confidence"] - old["confidence"]).sel(at).item()
            error = np.sqrt(new["confidence_se"].sel(at).item() ** 2 + old["confidence_se"].sel(at).item() ** 2)
            assert found["confidence"].sel(at).item() == pytest.approx(value)
            assert found["confidence_low"].sel(at).item() == pytest.approx(value - 1.96 * error)
            assert found["confidence_high"].sel(at).item() == pytest.approx(value + 1.96 * error)


def test_sentences_count_what_is_sure(runs):
    said = {finding.text.split(":")[0]: finding for finding in Comparison(*runs).findings()}
    old, new = (run["weights"].data["confidence"] for run in runs)
    errors = [run["weights"].data["confidence_se"].values for run in runs]
    sure = np.abs(new.values - old.values) > 1.96 * np.hypot(*errors)
    numbers = said["Confidence"].numbers
    assert numbers["count"] == sure.sum()
    assert numbers["cells"] == 12
    assert numbers["before"] == pytest.approx(old.mean().item())
    assert numbers["after"] == pytest.approx(new.mean().item())
    assert "nan" not in " ".join(finding.text for finding in said.values())


def test_a_run_does_not_differ_from_itself(runs):
    found = Comparison(runs[0], runs[0])
    assert all(finding.numbers.get("count", 0) == 0 for finding in found.findings())
    assert "changed its role" in " ".join(finding.text for finding in found.findings())
    assert "Nothing differs" in found.html()
    assert len(changed_roles(runs[0]["roles"], runs[0]["roles"])) == 0


def test_changed_roles_are_named(runs):
    data = runs[0]["roles"].data.copy(deep=True)
    data["label"].loc[{"stack": "encoder", "layer": 2, "head": 3, "role": "broad"}] ^= True
    other = Results([Result("roles", data, runs[0]["roles"].provenance)])
    (finding,) = Comparison(Results([runs[0]["roles"]]), other).findings()
    assert finding.text.startswith("1 of 12 heads changed their role: 2.3 (")


def test_the_page_and_the_command(runs, tmp_path):
    for name, run in zip(("before", "after"), runs, strict=True):
        run.save(tmp_path / name)
    page = tmp_path / "compare.html"
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--out", str(page)])
    assert done.exit_code == 0, done.output
    html = page.read_text(encoding="utf-8")
    assert "From before to after: what differs" in html
    assert html.count("<svg") == html.count("<figure") > 8
    for finding in Comparison.of(tmp_path / "before", tmp_path / "after").findings():
        assert finding.text in done.stdout


def test_runs_that_do_not_match_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"3 layers of 4 heads .* 2 layers of 4 heads"):
        differences(Results([weights()]), Results([weights(layers=2)]))
    with pytest.raises(UserError, match="no lens in common: the first run has weights, the second has norms"):
        differences(Results([weights()]), Results([norms()]))
    weights_only, both = Results([weights()]), Results([weights(seed=1), plugin()])
    found = differences(weights_only, both)
    assert found.notes == ("only the second has plug",)
    both.save(tmp_path / "both")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "both"), str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert done.stderr.startswith("lorgnette: There is no results folder")


def test_a_plug_in_lens_is_compared_too():
    one, two = Results([plugin()]), Results([plugin()])
    two["plug"].data["score"] = two["plug"].data["score"] + 1
    found = differences(one, two).results["plug"].data
    np.testing.assert_allclose(found["score"].values, 1.0)


def test_names_stay_text():
    html = Comparison(Results([weights()]), Results([weights(seed=1)]), (SCRIPT, "{x}")).html()
    assert "<script>alert" not in html
    assert "{x}" in html
