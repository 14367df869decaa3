"""Names tell things apart, and types say what they are."""

import ast
import inspect
import re
from collections import defaultdict
from pathlib import Path

import lorgnette
from lorgnette.types import Json

SOURCES = {path: path.read_text(encoding="utf-8") for path in Path(lorgnette.__file__).parent.rglob("*.py")}
MOST_ANY = 380
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


def test_no_public_signature_says_any():
    """JSON is the exception: what a file holds has the types of the file."""

    def functions(name: str, item: object) -> dict[str, object]:
        if not inspect.isclass(item):
            return {name: item}
        return {f"{name}.{key}": value for key, value in vars(item).items() if key == "__init__" or key[0] != "_"}

    public = {
        name: function
        for exported in lorgnette.__all__
        for name, function in functions(exported, getattr(lorgnette, exported)).items()
        if inspect.isfunction(function)
    }
    said = {name: str(function.__annotations__).replace(str(Json), "Json") for name, function in public.items()}
    assert len(said) > 100
    assert not {name for name, annotations in said.items() if "Any" in annotations}
