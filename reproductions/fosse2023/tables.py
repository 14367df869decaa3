"""All tables of the study, part by part."""

from collections.abc import Iterator

from reproductions.fosse2023.attention.runs import Runs
from reproductions.fosse2023.attention.sent_claims import sent_tables
from reproductions.fosse2023.attention.tables import tables as attention
from reproductions.fosse2023.classes.tables import tables as classes
from reproductions.fosse2023.encoders.nearest_claims import nearest_tables
from reproductions.fosse2023.encoders.tables import tables as encoders
from reproductions.fosse2023.tagging.tables import tables as tagging
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table, published


def tables(cells: Finished) -> Iterator[Table]:
    printed = published("fosse2023")
    if len(runs := cells.where(part="attention")):
        yield from attention(Runs(runs), printed)
    yield from sent_tables(cells)
    yield from encoders(cells, printed)
    yield from nearest_tables(cells, printed)
    yield from classes(cells)
    yield from tagging(cells)
