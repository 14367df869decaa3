"""Which texts of a corpus the states hold, in memory that hardly grows with the corpus."""

import zlib
from collections.abc import Container, Iterable
from itertools import chain

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

PAGE = 1 << 15
"""Texts of a page."""
_FULL = (1 << PAGE) - 1
Name = tuple[int, int, int]
"""The step in which the texts of a page are counted, from which text on, and the number of the page."""


class TextSet(Container[int]):
    """A set of texts, by their numbers in the corpus.

    A process takes every `every`-th text, almost in order. Counted in these steps its texts fill one page of bits after
    the other, and a full page needs no bits. Texts that a run with another number of processes added stay in the steps
    of that run. At worst, where parts of the corpus end in the middle of a page, a text takes a bit.
    """

    def __init__(self, packed: UInt8[Tensor, " byte"] | None = None, *, every: int = 1) -> None:
        self.every = every
        self._pages: dict[Name, int] = {} if packed is None else dict(_unpacked(packed.numpy().tobytes()))
        self._steps = {step for step, _, _ in self._pages}

    def add(self, numbers: Iterable[int]) -> None:
        """Add texts, counted in steps of `every`."""
        for number in numbers:
            page, bit = _place(number, self.every)
            self._fill(page, 1 << bit)

    def update(self, other: "TextSet") -> None:
        """Add the texts of another set."""
        for page, bits in other._pages.items():
            self._fill(page, bits)

    def _fill(self, page: Name, bits: int) -> None:
        bits |= self._pages.get(page, 0)
        self._pages[page] = _FULL if bits == _FULL else bits  # all full pages share one number
        self._steps.add(page[0])

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        places = (_place(number, step) for step in self._steps)
        return any(self._pages.get(page, 0) >> bit & 1 for page, bit in places)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._pages.values())

    def __le__(self, other: "TextSet") -> bool:
        """Whether the other set has all of these texts, and has them from the same run."""
        return all(bits & other._pages.get(page, 0) == bits for page, bits in self._pages.items())

    def packed(self) -> UInt8[Tensor, " byte"]:
        """The set for a file, deflated: how many pages, name and size of each (-1 if it is full), then the bytes."""
        bits = [b"" if page == _FULL else page.to_bytes(-(-page.bit_length() // 8), "little")
                for page in self._pages.values()]  # fmt: skip
        names = ((*name, len(some) or -1) for name, some in zip(self._pages, bits, strict=True))
        header = np.fromiter(chain([len(bits)], chain.from_iterable(names)), np.int64)
        deflated = zlib.compress(header.tobytes() + b"".join(bits), level=1)
        return torch.frombuffer(bytearray(deflated), dtype=torch.uint8)


def _place(number: int, step: int) -> tuple[Name, int]:
    row, start = divmod(number - 1, step)
    page, bit = divmod(row, PAGE)
    return (step, start, page), bit


def _unpacked(deflated: bytes) -> Iterable[tuple[Name, int]]:
    """The pages of a set from a file; a ValueError if it is none."""
    try:
        packed = zlib.decompress(deflated)
    except zlib.error as error:
        raise ValueError(f"its list of texts cannot be read: {error}") from error
    count = int(np.frombuffer(packed, np.int64, 1)[0])
    names = np.frombuffer(packed, np.int64, 4 * count, 8).reshape(-1, 4).tolist()
    at = 8 + 32 * count
    for step, start, page, size in names:
        if step < 1 or not -1 <= size <= PAGE // 8 or size == 0:
            raise ValueError("its list of texts is none")
        yield (step, start, page), _FULL if size == -1 else int.from_bytes(packed[at : at + size], "little")
        at += max(size, 0)
    if at != len(packed):
        raise ValueError("its list of texts ends too early")
