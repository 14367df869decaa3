"""Where words go: data to stdout, everything else to stderr."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 120  # rich takes a pipe to be 80 columns wide and would fold tables that a program reads


def out() -> "Console":
    """stdout; under torchrun only the first process speaks."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE
    return Console(width=width, highlight=False, quiet=os.environ.get("RANK", "0") != "0")


def err() -> "Console":
    from rich.console import Console

    return Console(stderr=True, highlight=False, quiet=os.environ.get("RANK", "0") != "0")
