"""All figures of the study, part by part."""

from collections.abc import Iterator

from reproductions.fosse2023.attention.figures import figures as attention
from reproductions.fosse2023.attention.runs import Runs
from reproductions.fosse2023.classes.figures import figures as classes
from reproductions.fosse2023.encoders.figures import figures as encoders
from reproductions.fosse2023.tagging.figures import figures as tagging
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure, published


def figures(cells: Finished) -> Iterator[Figure]:
    printed = published("fosse2023")
    if len(runs := cells.where(part="attention")):
        yield from attention(Runs(runs), printed)
    yield from encoders(cells, printed)
    yield from classes(cells)
    yield from tagging(cells)
