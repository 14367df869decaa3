"""The page on pruning says what the cells of its bench say."""

import json
from pathlib import Path

import pytest

from benchmarks.smaller_models import cost, saved

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "benchmarks" / "smaller" / "cells").glob("*.json"))


@pytest.mark.parametrize("table", [saved, cost])
def test_the_page_has_the_tables_of_the_cells(table):
    page = (ROOT / "docs" / "pruning.md").read_text(encoding="utf-8").splitlines()
    rows = list(table(FILES))
    assert len(rows) == 2 + sum("difference" in json.loads(file.read_text(encoding="utf-8")) for file in FILES) > 2
    assert len({row.count("|") for row in rows}) == 1
    start = page.index(rows[0])
    assert page[start : start + len(rows)] == rows
    assert not page[start + len(rows)].startswith("|")


def test_a_difference_is_that_of_the_scores():
    for file in FILES:
        cell = json.loads(file.read_text(encoding="utf-8"))
        if "difference" in cell:
            before, after = cell["before"], cell["metrics"][cell["before"]["split"]]
            (metric,) = {"accuracy", "bleu", "perplexity"} & before.keys()
            assert cell["difference"]["value"] == pytest.approx(after[metric] - before[metric])
