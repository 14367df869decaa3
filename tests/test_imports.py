"""Imports point one way, and importing Lorgnette is light."""

import ast
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lorgnette
from lorgnette import lens as lenses

ROOT = Path(lorgnette.__file__).parent

# From the ground up; a module may import its own level and those before it.
LEVELS = (
    "errors",
    "constraints",
    "types",
    "axes",
    "display",
    "free_memory",
    "files",
    "model_names",
    "kernels",
    "progress",
    "statistics",
    "results",
    "figures",
    "texts",
    "attending",
    "models",
    "subject",
    "contributions",
    "explaining",
    "syntax",
    "lens",
    "gpu",
    "looking",
    "bare",
    "training",
    "reporting",
    "serve",
    "demo",
    "testing",
    "cli",
    "__main__",
)
LEVEL = {name: level for level, name in enumerate(LEVELS)}
HEAVY = {"torch", "transformers", "torchmetrics", "xarray", "numpy", "pandas", "scipy", "sklearn", "datasets", "rich"}


def module_name(path: Path) -> str:
    parts = ("lorgnette", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(node: ast.AST, *, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run: not those under TYPE_CHECKING; those inside functions only if asked."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif is_type_checking(child):
            continue
        elif inside_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(child, inside_functions=inside_functions)


def imported(name: str, *, inside_functions: bool) -> set[str]:
    """Full names of what a module imports; of our own package, the modules."""
    found = set()
    for node in statements(ast.parse(MODULES[name].read_text(encoding="utf-8")), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        assert node.level == 0, f"{name} imports relatively; write the full name"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            public = lorgnette._MODULES.get(alias.name, node.module) if node.module == "lorgnette" else node.module
            found.add(inner if inner in MODULES else public)
    return found


def loaded_by(name: str) -> set[str]:
    """What importing a module loads: what it imports at the top, what that imports, and the packages of each."""
    found: set[str] = set()
    waiting = {name}
    while waiting:
        one = waiting.pop()
        found.add(one)
        if one in MODULES:
            waiting |= {one.rpartition(".")[0], *imported(one, inside_functions=False)} - found - {""}
    return found


def level(name: str) -> int:
    _, _, rest = name.partition(".")
    first = rest.split(".")[0]
    if not first:
        return 0  # the package itself holds names only
    assert first in LEVEL, f"lorgnette.{first} has no level yet: give it one in {Path(__file__).name}"
    return LEVEL[first]


def is_ours(name: str) -> bool:
    return name.split(".")[0] == "lorgnette"


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name):
    if name == "lorgnette":
        return  # it imports by name, when asked
    upward = {other for other in imported(name, inside_functions=True) if is_ours(other) and level(other) > level(name)}
    assert not upward, f"{name} imports upward: {', '.join(sorted(upward))}"


def test_no_cycles():
    graph = {
        name: {other for other in imported(name, inside_functions=False) if is_ours(other) and other != "lorgnette"}
        for name in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' → '.join(error.args[1])}")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in MODULES
        if name in ("lorgnette", "lorgnette.errors", "lorgnette.axes", "lorgnette.types") or ".cli" in name
    ],
)
def test_the_command_line_imports_nothing_heavy_at_the_top(name):
    heavy = {other for other in loaded_by(name) if other.split(".")[0] in HEAVY}
    assert not heavy, f"{name} loads {', '.join(sorted(heavy))}"


def test_a_folder_of_the_same_name_does_not_hide_the_package(tmp_path):
    """Whoever clones into `lorgnette/` and works beside the clone still imports the package, not the clone's folder."""
    (tmp_path / "lorgnette").mkdir()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import lorgnette; print('load' in dir(lorgnette))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_the_rules_would_notice(tmp_path, monkeypatch):
    path = tmp_path / "bad.py"
    path.write_text("import torch\ndef f():\n    from lorgnette.cli.app import app\n    from lorgnette import look\n")
    monkeypatch.setitem(MODULES, "lorgnette.statistics.bad", path)
    assert imported("lorgnette.statistics.bad", inside_functions=False) == {"torch"}
    assert "lorgnette.cli.app" in imported("lorgnette.statistics.bad", inside_functions=True)
    assert "lorgnette.looking.look" in imported("lorgnette.statistics.bad", inside_functions=True)
    with pytest.raises(AssertionError, match=r"imports upward: lorgnette\.cli\.app, lorgnette\.look"):
        test_imports_point_down("lorgnette.statistics.bad")


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@pytest.mark.parametrize("what", ["import lorgnette", "import lorgnette.cli.app", "import lorgnette; dir(lorgnette)"])
def test_importing_is_light(what):
    loaded = set(fresh(f"{what}\nimport sys\nprint(*sys.modules)").split())
    assert not loaded & (HEAVY - {"rich"})
    assert "lorgnette" in loaded
    assert "lorgnette.results" not in loaded


@pytest.mark.parametrize("name", lorgnette.__all__)
def test_every_public_name_is_there(name):
    assert getattr(lorgnette, name) is not None
    assert name in dir(lorgnette)


def test_look_stays_the_function():
    import lorgnette.looking.look

    assert isinstance(lorgnette.look, types.FunctionType)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lok'"):
        lorgnette.lok  # noqa: B018


def loaded_with(*names: str) -> set[str]:
    """All modules that importing some of ours loads: theirs, those of the packages they lie in, and so on."""
    waiting, loaded = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in loaded:
            continue
        loaded.add(name)
        if is_ours(name):
            waiting += [name.rpartition(".")[0] or name, *imported(name, inside_functions=False)]
    return loaded


def test_lenses_load_without_charts():
    loaded = loaded_with(*(place.partition(":")[0] for place in lenses.OURS.values()))
    assert "lorgnette.attending.sweep" in loaded
    assert "altair" not in {name.split(".")[0] for name in loaded}
    assert "altair" in {name.split(".")[0] for name in loaded_with("lorgnette.figures.charts")}


REPOSITORY = Path(__file__).parent.parent
PROGRAMS = [
    path
    for folder in ("src", "reproductions", "benchmarks", "examples", "docs")
    for path in (REPOSITORY / folder).rglob("*.py")
    if "tests" not in path.relative_to(REPOSITORY).parts
]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_module_imports_a_private_name_of_another():
    found = [
        f"{path.relative_to(REPOSITORY)}: {alias.name}"
        for path in PROGRAMS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("lorgnette", "reproductions"))
        for alias in node.names
        if is_private(alias.name)
    ]
    assert not found


def test_studies_override_no_private_method_of_the_library():
    private: dict[str, set[str]] = {}
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                private.setdefault(node.name, set()).update(methods(node))
    assert "_reduce_states" in private["Lens"]
    for path in (REPOSITORY / "reproductions").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                inherited = set().union(*(private.get(ast.unparse(base).split(".")[-1], set()) for base in node.bases))
                assert not methods(node) & inherited, f"{path}: {node.name}"


def methods(node: ast.ClassDef) -> set[str]:
    return {child.name for child in node.body if isinstance(child, ast.FunctionDef) and is_private(child.name)}
