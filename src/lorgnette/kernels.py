"""The door to the kernels of `lorgnette.gpu`: each is imported where a GPU first needs it, and None without Triton."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def attention_kernels() -> ModuleType | None:
    """Statistics of the rows of an attention call."""
    return _module("attention")


def norm_kernels() -> ModuleType | None:
    """Norms of transformed vectors."""
    return _module("norms")


def pair_kernels() -> ModuleType | None:
    """Sampled pairs of a query and a key."""
    return _module("pairs")


def divergence_kernels() -> ModuleType | None:
    """Divergences of all pairs of heads."""
    return _module("divergence")


def vector_kernels() -> ModuleType | None:
    """Directions and second moments of vectors."""
    return _module("vectors")


@cache
def _module(name: str) -> ModuleType | None:
    """Triton comes with torch for CUDA."""
    return None if find_spec("triton") is None else import_module(f"lorgnette.gpu.{name}")
