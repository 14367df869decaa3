"""The order of the page: what belongs together, whatever order the lenses were named in."""

from collections.abc import Mapping
from dataclasses import dataclass

from lorgnette.results import Result, Results


@dataclass(frozen=True)
class Chapter:
    """Lenses that answer one question of the reader."""

    name: str
    title: str
    lenses: tuple[str, ...] = ()


CHAPTERS = (
    Chapter("read", "What is read, and what arrives", ("weights", "norms", "frequency", "distances", "rollout")),
    Chapter(
        "for", "What heads are for", ("roles", "relations", "trees", "attention-probe", "coreference", "alignment")
    ),
    Chapter("geometry", "Geometry by layer", ("geometry", "cones", "convexity", "probes")),
    Chapter("trust", "Explanations, and how far to trust them", ("rationales", "relevance", "gradients", "agreement")),
    Chapter("prune", "What to prune", ("importance",)),
)
OTHER = Chapter("further", "Further lenses")


def chapter_of(lens: str) -> Chapter:
    """Where a lens stands; one that is not ours comes last."""
    return next((chapter for chapter in CHAPTERS if lens in chapter.lenses), OTHER)


def in_chapters(results: Results | Mapping[str, Result]) -> dict[Chapter, dict[str, Result]]:
    """Results by chapter, those of a chapter in its order; chapters without a result are left out."""
    out: dict[Chapter, dict[str, Result]] = {}
    for chapter in (*CHAPTERS, OTHER):
        there = {name: result for name, result in results.items() if chapter_of(result.lens) == chapter}
        if chapter is not OTHER:
            there = dict(sorted(there.items(), key=lambda item: chapter.lenses.index(item[1].lens)))
        if there:
            out[chapter] = there
    return out
