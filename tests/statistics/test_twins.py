"""The page that says which number has an independent twin names every lens and method, and tests that exist."""

import re
from pathlib import Path

from lorgnette import lens
from lorgnette.explaining import METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tests.md").read_text(encoding="utf-8").split("independent twin?")[1]
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| number")]


def test_every_lens_and_every_method_has_a_twin():
    named = {name for row in ROWS for name in re.findall(r"`([\w-]+)`", row[0])}
    assert {*lens.names(), *METHODS} <= named


def test_the_tests_exist():
    for _, _, tests in ROWS:
        for part in tests.rstrip(" |").split("; "):
            file, *names = re.findall(r"`([^`]+)`", part)
            text = (ROOT / file).read_text(encoding="utf-8")
            assert names
            assert [name for name in names if f"def {name}(" not in text] == [], file
