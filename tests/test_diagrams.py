"""The diagrams of docs/concepts are what docs/diagrams.py draws, and their pages say its numbers."""

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parent.parent / "docs"
CONCEPTS = sorted(path.stem for path in (DOCS / "concepts").glob("*.md"))
SAID = {
    "attention": ("{good_to_not:.2f}",),
    "norms": ("{weight:.0%}", "{share:.0%}"),
    "relevance": ("{logit:.2f}",),
    "geometry": ("{sim:.2f}", "{sim_moved:.2f}"),
    "standard-errors": ("{tokens:.0%}", "{texts:.0%}"),
}


@pytest.fixture
def diagrams(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("diagrams").DIAGRAMS


def test_every_concept_has_a_diagram_and_a_place_in_the_index(diagrams):
    assert sorted(diagrams) == CONCEPTS == sorted(SAID)
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert all(f"\nconcepts/{name}\n" in index for name in CONCEPTS)


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_page_is_short_and_says_the_numbers_of_its_diagram(diagrams, name):
    page, numbers = diagrams[name]()
    text = (DOCS / "concepts" / f"{name}.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    assert f"(../images/concepts/{name}.svg)" in text
    for form in SAID[name]:
        said = re.sub(r"(\d)%", r"\1 %", form.format(**numbers)).replace("-", "−")
        assert said in text, said
    assert (DOCS / "images" / "concepts" / f"{name}.svg").read_text(encoding="utf-8") == page.svg()


@pytest.mark.parametrize("name", CONCEPTS)
def test_all_words_of_a_diagram_stand_inside_it(diagrams, name):
    """Letters are at most 0.55 of their size wide on average."""
    page, _ = diagrams[name]()
    width, height = page.size
    for text in ElementTree.fromstring(page.svg()).iter("{http://www.w3.org/2000/svg}text"):
        x, y, size = (float(text.attrib[key]) for key in ("x", "y", "font-size"))
        length = 0.55 * size * len(text.text)
        left = x - {"start": 0, "middle": length / 2, "end": length}[text.attrib["text-anchor"]]
        assert left >= 0, text.text
        assert left + length <= width + 1, text.text
        assert 0 < y <= height, text.text
