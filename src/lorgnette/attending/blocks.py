"""How a call is cut into blocks that stay in the cache."""

from collections.abc import Iterator

import torch

from lorgnette.attending.band import Band

BANDED = 64
"""Rows in one block where a band hides keys: fewer rows together see fewer keys."""


def blocks(
    shape: tuple[int, int, int, int] | torch.Size, size: int, *, together: bool, most: int | None = None
) -> Iterator[tuple[slice, slice, slice]]:
    """Whole texts if they fit, else whole heads (or rows of all heads together), else rows of one head.

    `size`: floats in one block; `most`: rows in it.
    """
    batch, head, queries, keys = shape
    longest = queries if most is None else min(most, queries)
    texts = max(1, size // (head * longest * keys))
    heads = head if together or head * longest * keys <= size else max(1, size // (longest * keys))
    per_row = heads * keys if together else keys
    rows = longest if longest * per_row <= size else max(1, size // per_row)
    for b in range(0, batch, texts):
        for r in range(0, queries, rows):
            for h in range(0, head, heads):
                yield (
                    slice(b, min(b + texts, batch)),
                    slice(h, min(h + heads, head)),
                    slice(r, min(r + rows, queries)),
                )


def keys_of(band: Band, rows: slice, queries: int, keys: int) -> slice:
    """The range of keys that the band leaves visible to any of these rows; never empty, even if all are hidden."""
    first, last = rows.start + keys - queries, rows.stop - 1 + keys - queries
    begin = 0 if band.window is None else max(0, min(first - band.window, keys - 1))
    end = keys if not band else last + 1 if band.causal else last + 1 + (band.window or 0)
    return slice(begin, max(begin + 1, min(end, keys)))
