"""Names tell things apart, and types say what they are."""

import ast
import builtins
import dis
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType

import pytest
import torch
import torchmetrics

import lorgnette
from lorgnette import kernels
from lorgnette.lens.base import Lens
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


REPOSITORY = Path(__file__).parent.parent
MODULE = {"__file__", "__name__", "__doc__", "__all__", "__path__", "__spec__"}


def code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def undefined(source: str) -> set[str]:
    """Globals that functions read and nothing defines. ruff's F821 is off: it takes the axes of jaxtyping for names."""
    whole = compile(source, "source", "exec")
    found = [(code, step.opname, step.argval) for code in code_objects(whole) for step in dis.get_instructions(code)]
    bound = {name for code, what, name in found if what == "STORE_GLOBAL" or (code is whole and what == "STORE_NAME")}
    return {name for _, what, name in found if what == "LOAD_GLOBAL"} - bound - set(vars(builtins)) - MODULE


def test_every_name_is_defined():
    assert undefined("import os\ndef f():\n    raise NoSuchError(os.sep, len(__file__))") == {"NoSuchError"}
    folders = ("src", "reproductions", "benchmarks", "scripts", "examples", "docs", "tests")
    sources = {
        path: path.read_text(encoding="utf-8") for folder in folders for path in (REPOSITORY / folder).rglob("*.py")
    }
    assert len(sources) > 1000
    assert not {str(path): names for path, text in sources.items() if (names := undefined(text))}


def test_no_lens_names_a_gpu():
    """What a GPU does faster is found by `lorgnette.kernels`."""
    named = re.compile(r"gpu|cuda|triton|unreplayable", re.IGNORECASE)
    lenses = Path(lorgnette.__file__).parent / "lens"
    texts = {path: text for path, text in SOURCES.items() if lenses in path.parents}
    assert len(texts) > 100
    assert not {str(path): found for path, text in texts.items() if (found := named.findall(text))}


def test_what_is_faster_stands_in_for_something():
    pytest.importorskip(
        "triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)"
    )
    for name in kernels.FASTER:
        module, _, own = name.rpartition(".")
        slow = getattr(import_module(module), own)
        quick = kernels.faster(slow)
        assert callable(quick)
        assert quick is not slow
        if inspect.isclass(slow):
            assert issubclass(quick, slow)
            assert kernels.made_for(slow, torch.device("cuda")) is quick
            assert kernels.made_for(slow, torch.device("cpu")) is slow


def test_the_contract_of_a_lens_stays_small():
    """Beside what torchmetrics has. What a single lens needs belongs to that lens, or to a part."""
    beside = set(dir(torchmetrics.Metric))
    public = {name: value for name, value in vars(Lens).items() if name[0] != "_" and name not in beside}
    methods = {name for name, value in public.items() if inspect.isroutine(value) or isinstance(value, property)}
    assert len(methods) <= 14, sorted(methods)
    attributes = {name for name in {*public, *Lens.__annotations__} - methods - beside if name[0] != "_"}
    assert len(attributes - {"name", "summary", "signals"}) <= 3, sorted(attributes)
