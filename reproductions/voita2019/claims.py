"""The claims of both parts."""

from collections.abc import Iterator

from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished, made
from reproductions.voita2019 import claims_heads, claims_pruning


def claims(cells: Finished) -> Iterator[Claim]:
    yield from made(claims_heads.makers(cells))
    yield from made(claims_pruning.makers(cells))
