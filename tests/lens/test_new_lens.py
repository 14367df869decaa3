"""`lorgnette new lens`: the package that it writes is installed, passes its own tests, and works like our lenses."""

import subprocess
import sys

import pytest
from processes import run
from tiny import EXAMPLES, bert
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.lens.template import new_lens


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package, installed into a folder of its own; nothing is fetched."""
    source, site = tmp_path_factory.mktemp("new") / "source", tmp_path_factory.mktemp("site")
    done = CliRunner().invoke(app, ["new", "lens", "far-reach", "--out", str(source)])
    assert done.exit_code == 0, done.output
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(source)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True, timeout=120)
    return source, site


def test_its_own_tests_pass(package):
    """In a process of its own, as its author would run them."""
    source, site = package
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = run("-c", code, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests", cwd=source)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "3 passed" in done.stdout


def test_look_report_compare_and_the_lists_know_it(package, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(package[1])
    assert lo.lenses()["far-reach"] == "how far back each head looks"
    assert "specials=true" in CliRunner().invoke(app, ["lens", "far-reach"]).output
    texts = [example.text for example in EXAMPLES]
    runs = [lo.look(bert(seed=seed), texts, "far-reach:specials=false", progress=False) for seed in (0, 1)]
    page = lo.report(runs[0], tmp_path / "report.html")[0].read_text()
    assert "How far back heads look" in page
    compared = lo.compare(*runs)
    assert set(compared.differences().results["far-reach"].data.data_vars) >= {"reach", "reach_se"}
    for module in [module for module in sys.modules if module.split(".")[0] == "far_reach"]:
        del sys.modules[module]


@pytest.mark.parametrize(
    ("name", "words"),
    [("weights", "already"), ("My Lens", "cannot name"), ("class", "cannot name"), ("fine", "exists")],
)
def test_slips_are_one_line(name, words, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=words):
        new_lens(name, tmp_path)
