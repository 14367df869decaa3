"""The page on language models has the table that its committed figures make."""

import json

import pytest

from benchmarks.quantised import FIGURES, PAGE, replaced, table


@pytest.fixture(scope="module")
def figures():
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def test_the_page_has_the_figures(figures):
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, table(figures)) == page


def test_a_new_figure_replaces_the_old_one(figures):
    """Row by row, with the sentence below; the rest of the page stays."""
    page = PAGE.read_text(encoding="utf-8")
    name, row = next(iter(figures["formats"].items()))
    told = "differences are 0.77 of what rounding explains (at most 1.5), in 210 maps"
    changed = {**figures, "formats": {name: {**row, "maps": told, "norms": 3.21e-4, "failed": ["rows: 2"]}}}
    made = replaced(page, table(changed))
    assert f"| {name} | 210 | 0.77 | 3e-4 |" in made
    assert f"These checks failed: {name}: rows: 2. Made with torchao" in made
    assert replaced(made, table(figures)) == page
