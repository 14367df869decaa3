"""The canary: what it says of models that changed, and when it fails."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_SPEC = importlib.util.spec_from_file_location("canary", ROOT / "scripts" / "canary.py")
assert _SPEC is not None
assert _SPEC.loader is not None
canary = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(canary)

EXACT = {"model_type": "bert", "outcome": "exact", "eager": True}


@pytest.mark.parametrize(
    ("now", "said", "worse"),
    [
        (EXACT, None, False),
        ({**EXACT, "lacks": ["output"]}, "bert: exact → exact without output", True),
        ({**EXACT, "outcome": "refused", "why": "it moved"}, "bert: exact → refused (it moved)", True),
        ({**EXACT, "eager": False}, None, True),
        (None, "bert: gone", True),
    ],
)
def test_less_than_the_table_says_fails(now, said, worse):
    lines, found = canary.changes({"bert": EXACT}, {} if now is None else {"bert": now})
    assert found == (["bert"] if worse else [])
    assert said is None or said in lines


def test_better_and_new_models_are_named_and_do_not_fail():
    before = {"xglm": {"outcome": "refused", "why": "it bypasses us"}}
    lines, worse = canary.changes(before, {"xglm": EXACT, "new": EXACT})
    assert lines == ["new: new, exact", "xglm: refused (it bypasses us) → exact"]
    assert not worse


def test_one_model_in_this_environment(capfd):
    assert canary.main(["--here", "bert"]) == 0
    version = json.loads(canary.FILE.read_text(encoding="utf-8"))["transformers"]
    assert f"the table was made with {version}.\nNothing changed for 1 models." in capfd.readouterr().out
