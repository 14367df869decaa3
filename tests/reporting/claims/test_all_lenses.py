"""No lens says something that no rule checks."""

from importlib import import_module
from pathlib import Path

from claims.rules import RULES
from lorgnette import lens


def test_every_lens_has_rules():
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        import_module(f"claims.{file.stem}")
    assert set(RULES) == set(lens.names())
