"""Where data goes: stdout, from one process only. Progress and errors go to stderr."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 120  # rich takes a pipe to be 80 columns wide and would fold tables that a program reads
_ENDLESS = 100_000


def out(*, fold: bool = True) -> "Console":
    """stdout; under torchrun only the first process speaks. Without `fold`, lines are as long as they are."""
    from rich.console import Console

    from lorgnette.looking.processes import is_first

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE
    return Console(width=width if fold else _ENDLESS, highlight=False, quiet=not is_first())
