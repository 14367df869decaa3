"""The page on pruning says what the cells of its bench say."""

import json
from pathlib import Path

import pytest

from benchmarks.smaller_models import lines

ROOT = Path(__file__).parent.parent
CELLS = ROOT / "benchmarks" / "smaller" / "cells"


@pytest.mark.parametrize("speed", ["1.5", "2"])
def test_the_page_quotes_the_cells(speed):
    cell = json.loads((CELLS / f"sst2-importance-{speed}-0.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "pruning.md").read_text(encoding="utf-8")
    accuracy, (low, high) = cell["metrics"]["test"]["accuracy"], cell["metrics"]["test"]["interval"]
    assert cell["difference"]["value"] == pytest.approx(accuracy - cell["before"]["accuracy"])
    said = [f"{accuracy:.3f} [{low:.3f}, {high:.3f}]"]
    for change in (cell["difference"], cell["tuned"]["difference"]):
        low, high = change["interval"]
        sign = "+" if change["value"] > 0 else ""
        said.append(f"{sign}{change['value']:.3f} [{low:.3f}, {high:.3f}]".replace("-", "−"))
    for each in (*cell["times"], *cell["times_again"]):
        said.append(f"× {each['measured']:.2f} ({each['spread'][0]:.2f}–{each['spread'][1]:.2f})")
    sizes, controls = cell["parameters"], cell["controls"]
    said.append(f"{sizes['after'] / sizes['before']:.1%}".replace("%", " %"))
    random = ", ".join(f"{each:.3f}" for each in controls["random"])
    said.append(f"{controls['chosen']:.3f}; {random}; {controls['magnitude']:.3f}")
    said = [each.replace("[-", "[−") for each in said]
    missing = [each for each in said if each not in page]
    assert not missing


def test_the_table_has_a_row_for_each_cell():
    rows = list(lines(sorted(CELLS.glob("sst2-importance-*.json"))))
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["sst2-importance-1.5-0", "sst2-importance-2-0"]
