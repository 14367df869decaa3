"""The set of analysed texts, against Python's own set; what it takes."""

import random
import tracemalloc
import zlib

import pytest
import torch

from lorgnette.looking.text_set import PAGE, TextSet

SPREADS = {"all": (1, range(1, 3 * PAGE)), "a share": (64, range(3, 64 * 3 * PAGE, 64)), "few": (7, (1, 5, 700, 701))}


def in_windows(numbers, size=4096):
    """In the order of a look: some thousand at a time, by length."""
    draw, numbers = random.Random(0), list(numbers)
    for start in range(0, len(numbers), size):
        window = numbers[start : start + size]
        draw.shuffle(window)
        yield window


@pytest.mark.parametrize("spread", SPREADS)
def test_as_a_set(spread):
    every, numbers = SPREADS[spread]
    found, expected = TextSet(every=every), set()
    for number, window in enumerate(in_windows(numbers)):
        found.add(window)
        expected |= set(window)
        if number % 8 == 0:
            assert len(found) == len(expected)
    again = TextSet(found.packed())
    for each in (found, again):
        assert len(each) == len(expected)
        assert all(number in each for number in expected)
        others = {number + shift for number in random.Random(1).sample(sorted(expected), 4) for shift in (-1, 1, PAGE)}
        assert [number in each for number in others] == [number in expected for number in others]
    assert again <= found <= again
    assert "1" not in found


def test_together_with_texts_of_another_number_of_processes():
    old, new = TextSet(every=2), TextSet(every=3)
    old.add(range(1, 100, 2))
    new.update(TextSet(old.packed()))
    new.add(range(2, 100, 6))
    assert len(new) == 50 + 17
    assert old <= new
    assert not new <= old
    again = TextSet(new.packed(), every=3)
    assert [number for number in range(120) if number in again] == sorted({*range(1, 100, 2), *range(2, 100, 6)})
    again.update(old)
    assert len(again) == len(new)


def test_memory_and_file_hardly_grow_with_the_texts():
    """Of a shard of 64 of a corpus in 96 parts, one part after another."""
    sizes = {}
    for rows in (10_000, 200_000):
        found = TextSet(every=192)
        tracemalloc.start()
        try:
            for place in (2, 34, 66):
                for window in in_windows(range(1 + place, 1 + place + 192 * (rows // 3), 192)):
                    found.add(window)
            sizes[rows] = tracemalloc.get_traced_memory()[0], found.packed().numel()
        finally:
            tracemalloc.stop()
    held, written = (large - small for small, large in zip(*sizes.values(), strict=True))
    assert held < 15_000
    assert written < 2_000
    full = TextSet(every=1)
    full._pages = {(1, 0, page): (1 << PAGE) - 1 for page in range(10**9 // PAGE)}
    assert full.packed().numel() < 1_000_000


@pytest.mark.parametrize("content", [b"", b"\1" * 7, b"\xff" * 8, b"\1" + bytes(7), b"\1" + bytes(39), bytes(12)])
def test_what_is_no_set_is_refused(content):
    for damaged in (zlib.compress(content), content or b"1"):
        with pytest.raises(ValueError):
            TextSet(torch.frombuffer(bytearray(damaged), dtype=torch.uint8))
