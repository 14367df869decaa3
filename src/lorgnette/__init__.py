"""Analyse self-attention: what each head attends to, how much each token contributes, and which heads can be pruned.

Importing this module is fast: every public name is loaded when it is first used. Hence our own classifier registers
itself with transformers' Auto classes when `lorgnette.models` is imported, which `load` does, not here.
"""

import ast
from importlib import import_module
from pkgutil import get_data
from typing import Any

__version__ = "0.2.0"


def public_names(package: str) -> dict[str, str]:
    """Public name → module, from the table that type checkers read too: the `__init__.pyi` of a package."""
    table = get_data(package, "__init__.pyi")
    assert table is not None
    imports = (node for node in ast.parse(table).body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULES = public_names(__name__)
_RENAMED = {"corpus_names": "corpora"}
"""Old names, each with the new one: they work for one more minor version, and say so (CONTRIBUTING.md)."""
__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        warnings.warn(f"lo.{name} is now lo.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _MODULES:
        raise AttributeError(f"module 'lorgnette' has no attribute {name!r}")
    if _MODULES[name] == __name__:
        return import_module(f"{__name__}.{name}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
