"""Names tell things apart, and types say what they are."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import lorgnette

SOURCES = {path: path.read_text(encoding="utf-8") for path in Path(lorgnette.__file__).parent.rglob("*.py")}
MOST_ANY = 900
"""How often `Any` may stand in the package: the number falls, it does not rise."""


def test_no_two_classes_share_a_name():
    places = defaultdict(list)
    for path, text in SOURCES.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_any_is_the_exception():
    assert sum(len(re.findall(r"\bAny\b", text)) for text in SOURCES.values()) <= MOST_ANY
