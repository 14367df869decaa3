"""What the page on security promises is tested by tests that exist; the files of the demos start a page."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = {
    name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
}


def test_every_promise_names_a_test_that_exists():
    rows = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| ")]
    for row in rows:
        if row.startswith("| promise"):
            continue
        names = re.findall(r"`(test_\w+|tests/\S+\.py)`", row)
        assert names, row
        for name in names:
            assert name in TESTS or (ROOT / name).is_file(), name


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("space/Dockerfile", r"exec (lorgnette serve[^]]*?)\"\]"), ("Containerfile", r"lorgnette (serve .*)$")],
)
def test_the_demos_start_a_page_with_options_that_exist(file, pattern):
    from typer.main import get_command

    from lorgnette.cli.app import app

    (line,) = re.findall(pattern, (ROOT / file).read_text(), flags=re.MULTILINE)
    words = shlex.split(line.replace('\\"$MODEL\\"', "minilm"))
    arguments = words[words.index("serve") + 1 :]
    context = get_command(app).commands["serve"].make_context("serve", arguments)
    assert context.params["models"] == ["minilm"]
    assert context.params["host"] == "0.0.0.0"
    assert context.params["public"] == (file == "space/Dockerfile")
