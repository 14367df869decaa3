"""The canary: what it says of models that changed, and when it fails."""

import importlib.util
import json
from pathlib import Path

import pytest
from verified import SECTIONS

ROOT = Path(__file__).parent.parent
_SPEC = importlib.util.spec_from_file_location("canary", ROOT / "scripts" / "canary.py")
assert _SPEC is not None
assert _SPEC.loader is not None
canary = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(canary)

EXACT = {"model_type": "bert", "outcome": "exact", "eager": True, "relevance": True, "stacks": ["vision", "decoder"]}
WHOLE = "exact, with the stacks vision, decoder, compared with eager attention, with relevance"


@pytest.mark.parametrize(
    ("now", "said", "worse"),
    [
        (EXACT, None, False),
        ({**EXACT, "prunes": True}, f"{WHOLE}, whose heads can be removed", False),
        ({**EXACT, "tolerance": "another figure"}, None, False),
        ({**EXACT, "lacks": ["output"]}, WHOLE.replace("exact,", "exact, without output,"), True),
        ({**EXACT, "eager": False}, "exact, with the stacks vision, decoder, with relevance", True),
        ({**EXACT, "relevance": False}, "exact, with the stacks vision, decoder, compared with eager attention", True),
        ({**EXACT, "stacks": ["decoder"]}, WHOLE.replace("vision, decoder", "decoder"), True),
        ({**EXACT, "hybrid": "1 of 2"}, WHOLE.replace("decoder,", "decoder, attention in 1 of 2 layers,"), True),
        ({"model_type": "bert", "outcome": "refused", "why": "it moved"}, "refused (it moved)", True),
        (None, "gone", True),
    ],
)
def test_less_than_the_table_says_fails(now, said, worse):
    lines, found = canary.changes({"bert": EXACT}, {} if now is None else {"bert": now})
    assert found == (["bert"] if worse else [])
    line = None if said is None else "bert: gone" if now is None else f"bert: {WHOLE} → {said}"
    assert lines == [] if line is None else lines[0] == line


def test_better_and_new_models_are_named_and_do_not_fail():
    before = {"xglm": {"outcome": "refused", "why": "it bypasses us"}}
    lines, worse = canary.changes(before, {"xglm": {"outcome": "exact"}, "new": {"outcome": "exact"}})
    assert lines == ["new: new, exact", "xglm: refused (it bypasses us) → exact"]
    assert not worse


def test_every_section_is_compared():
    """Rows of all sections, by the names by which they are made anew."""
    table = json.loads(canary.FILE.read_text(encoding="utf-8"))
    sections = {name: {row["model_type"] for row in table[name]} for name in table if name in SECTIONS}
    assert set(table) == {"transformers", "untried_pictures", *SECTIONS}
    assert set(sections) == set(SECTIONS) == {"models", "pictures", "senses", "quantised"}
    assert set(canary.known_rows(table, [])) == set().union(*sections.values())
    assert set(canary.known_rows(table, ["senses", "bert"])) == sections["senses"] | {"bert"}
    apart = set().union(*(sections[name] for name in SECTIONS if name != "models"))
    for name, (types, _) in SECTIONS.items():
        assert sections[name] == set(types()) - (apart if name == "models" else set())


def test_two_models_in_this_environment(capfd):
    assert canary.main(["--here", "bert", "vit"]) == 0
    version = json.loads(canary.FILE.read_text(encoding="utf-8"))["transformers"]
    assert f"the table was made with {version}.\nNothing changed for 2 models." in capfd.readouterr().out
