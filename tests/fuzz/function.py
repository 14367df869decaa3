"""A function whose arguments are replaced, one at a time, by values that it may not expect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Function:
    """A function with arguments that are right, and for each argument the words by which a message may name it."""

    call: Callable[..., Any]
    right: dict[str, Any]
    names: dict[str, tuple[str, ...]]
    of: Callable[..., Any]
    """whose annotations say which values are right"""


HEAD = ("head", "stack", "whole number", "factor")
MODEL = ("Subject", "model", "anatomy", "family")
CORPUS = ("corpus", "text", "split", "column", "data set")
"""Words by which a message may name a head, a model, texts."""
