"""A bounded sample of texts, one row of numbers each: random number, id, and whatever belongs to the text.

All of it is in one tensor, the id too, so that a sample merges, shards and resumes like any other state.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.statistics.hashing import text_key

LETTERS = 48
"""Bytes kept of an id; a longer one is cut, and says so."""
_ID = 2
_VALUES = _ID + LETTERS // 3


class TextRows:
    """Keeps the `size` texts whose ids have the smallest random numbers; which they are depends on nothing else.

    A row: the number in two halves of 24 bits and the id in groups of three bytes (both exact in single precision),
    then the values. An empty row has an infinite number.
    """

    def __init__(self, lens: Any, values: int, state: str, *, size: int, seed: int = 0) -> None:
        self.lens, self.state, self.seed = lens, state, seed
        empty = torch.zeros(size, _VALUES + values, dtype=lens.precision)
        empty[:, 0] = torch.inf
        lens.add_state(state, empty, dist_reduce_fx=smallest_rows)

    def add(self, ids: Sequence[str], values: Float[Tensor, "text value"]) -> None:
        """Offer the texts of a batch."""
        state = getattr(self.lens, self.state)
        numbers = torch.tensor([text_key(self.state, self.seed, name) >> 16 for name in ids])
        wanted = numbers.double() < _number(state)[-1]  # sorted: the last is the largest
        if not wanted.any():
            return
        head = torch.stack([numbers >> 24, numbers & (2**24 - 1)], -1).double()
        names = torch.tensor([_packed(name) for name in ids], dtype=torch.float64)
        rows = torch.cat([head, names, values.double().cpu()], -1)[wanted].to(state)
        setattr(self.lens, self.state, smallest_rows([state, rows], len(state)))

    def kept(self) -> tuple[list[str], Float[Tensor, "text value"]]:
        """Ids and values of the sample, in the order of their random numbers."""
        rows = getattr(self.lens, self.state).double().cpu()
        rows = rows[torch.isfinite(rows[:, 0])]
        return [_unpacked(row) for row in rows[:, _ID:_VALUES].long().tolist()], rows[:, _VALUES:]


def smallest_rows(
    samples: "Float[Tensor, 'sample row column'] | Sequence[Float[Tensor, '_ column']]", size: int | None = None
) -> Float[Tensor, "kept column"]:
    """The rows of smallest number of several samples, in order."""
    joined = torch.cat(tuple(samples))
    order = _number(joined).sort(stable=True).indices
    return joined[order[: len(samples[0]) if size is None else size]]


def _number(rows: Float[Tensor, "row column"]) -> Float[Tensor, " row"]:
    return rows[:, 0].double() * 2.0**24 + rows[:, 1].double()


def _packed(name: str) -> list[int]:
    raw = name.encode()
    if len(raw) > LETTERS:
        raw = raw[: LETTERS - 3].decode(errors="ignore").encode() + "…".encode()
    raw = raw.ljust(LETTERS, b"\0")
    return [int.from_bytes(raw[k : k + 3], "big") for k in range(0, LETTERS, 3)]


def _unpacked(groups: Sequence[int]) -> str:
    return b"".join(int(group).to_bytes(3, "big") for group in groups).rstrip(b"\0").decode()
