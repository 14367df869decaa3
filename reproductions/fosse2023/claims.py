"""All claims of the study, part by part."""

from collections.abc import Iterator

from reproductions.fosse2023.attention.claims import claims as attention
from reproductions.fosse2023.attention.runs import Runs
from reproductions.fosse2023.attention.sent_claims import sent_claims
from reproductions.fosse2023.classes.claims import claims as classes
from reproductions.fosse2023.encoders.claims import claims as encoders
from reproductions.fosse2023.encoders.nearest_claims import contextual_claims, nearest_claims
from reproductions.fosse2023.tagging.claims import claims as tagging
from reproductions.frame.claims import Claim
from reproductions.frame.finished import Finished
from reproductions.frame.page import published


def claims(cells: Finished) -> Iterator[Claim]:
    printed = published("fosse2023")
    yield from attention(Runs(cells.where(part="attention")), printed)
    yield from sent_claims(cells)
    yield from encoders(cells, printed)
    yield from nearest_claims(cells)
    yield from contextual_claims(cells, printed)
    yield from classes(cells, printed)
    yield from tagging(cells)
