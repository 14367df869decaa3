"""The tables of both parts."""

from collections.abc import Iterator

from reproductions.frame.finished import Finished, made
from reproductions.frame.page import Table
from reproductions.voita2019 import tables_heads, tables_pruning


def tables(cells: Finished) -> Iterator[Table]:
    yield from made(tables_heads.makers(cells))
    yield from made(tables_pruning.makers(cells))
