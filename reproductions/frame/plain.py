"""Arrays as plain values, for cells that are written as nested lists."""

from typing import Any

import numpy as np


def plain(values: Any) -> Any:
    """Nested lists for JSON: what is missing is None."""
    cells = np.asarray(values, dtype=float).astype(object)
    cells[cells != cells] = None
    return cells.tolist()
