"""What is said of many classes: directions are orthogonal, all are used, and accuracy holds up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from reproductions.fosse2023.classes.bounds import least_largest_cosine
from reproductions.fosse2023.cone_claims import ORTHOGONAL, WITHIN
from reproductions.fosse2023.grid import SET_VECTORS, SETS, WIDE_COUNTS, WIDE_WIDTHS, WIDTHS
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import COSINE, SHARE, mean_of

ENOUGH = 0.95
"""Accuracy that counts as kept; fixed before anything was measured, as are the next two."""
NEAR_SIMPLEX = 0.1
USED = 0.8
_MANY = Published("with many classes, directions seem orthogonal at first sight", "slides, perspectives")
TITLES = {
    "genres": "GUM genres of 48 words",
    "xpos": "EWT parts of speech (XPOS) of a marked word",
    "features": "EWT UPOS and features of a marked word",
    "lemmas": "the 500 most frequent lemmas of EWT, masked",
}


@dataclass(frozen=True)
class Directions:
    """The runs of one model width on one set of classes, over seeds; `path` leads to the numbers in their results."""

    runs: Finished
    classes: int
    width: int
    path: str = ""

    def array(self, path: str) -> xr.DataArray:
        return self.runs.array(self.path + path, "seed")

    def value(self, path: str, ends: tuple[float, float] | None = None) -> Estimate:
        return mean_of(self.array(path), ends=ends)

    @property
    def room(self) -> int:
        """Dimensions that states have: the norm takes away the mean of the components."""
        return self.width - 1

    @property
    def bound(self) -> float:
        """What the largest cosine of so many directions cannot go below in a model of this width."""
        return least_largest_cosine(self.classes, self.room)

    @property
    def most(self) -> int:
        """Directions that there can be, less their mean."""
        return min(self.classes - 1, self.room)


def planted(cells: Finished) -> dict[tuple[int, int], Directions]:
    """(width, classes) → the runs."""
    found = {}
    for width in sorted({*WIDTHS, *WIDE_WIDTHS}):
        runs = cells.where(part="classes", set="planted", width=width)
        groups = {classes: counts for counts in runs.labels("counts") for classes in counts}
        for classes in sorted(groups):
            found[width, classes] = Directions(runs.where(counts=groups[classes]), classes, width, f"{classes}.")
    return found


def labelled(cells: Finished) -> dict[tuple[str, str], Directions]:
    """(label set, word vectors) → the runs; classes with too few test texts have no direction."""
    found = {}
    for name in SETS:
        runs = cells.where(part="classes", set=name)
        for vectors in sorted(runs.labels("vectors"), key=_by_source):
            some = runs.where(vectors=vectors)
            found[name, vectors] = Directions(some, some.cells[0].value("classes_used"), SET_VECTORS[vectors])
    return found


def _by_source(vectors: str) -> tuple[bool, int]:
    return vectors.startswith("random"), SET_VECTORS[vectors]


def claims(cells: Finished, printed: Mapping[str, Any]) -> Iterator[Claim]:
    runs = planted(cells)
    for width in dict.fromkeys(width for width, _ in runs):
        yield from _planted({classes: one for (w, classes), one in runs.items() if w == width})
    best = {name: one for (name, vectors), one in reversed(labelled(cells).items())}
    for name in (name for name in SETS if name in best):
        if best[name].array("accuracy").size > 1:
            yield from _labelled(name, best[name], printed["newsgroups"])


def _planted(every: Mapping[int, Directions]) -> Iterator[Claim]:
    room = next(iter(every.values())).room
    for classes in (c for c in WIDE_COUNTS if c in every and len(every[c].runs) > 1):
        how = "with fewer than" if classes <= 2 * room else "with more than"
        yield from (_enough(every[classes], how), _all_used(every[classes]))
    runs = {classes: one for classes, one in every.items() if classes not in WIDE_COUNTS}
    for classes in (c for c in (8, 64) if c in runs and c <= room):  # the slides speak of many classes, not of two
        mean = float(runs[classes].array("raw.mean").mean())
        where = f"width {runs[classes].width}, {classes} planted classes"
        yield from _orthogonal(runs[classes], _id("orthogonal", runs[classes]), where, "directions", f"mean {mean:.2f}")
        yield _simplex(runs[classes])
    few, many = ([c for c in runs if (c > 2 * room) is beyond] for beyond in (False, True))
    if few:
        yield _enough(runs[few[-1]], "with fewer than")
    if many:
        yield _enough(runs[many[-1]], "with far more than")
        yield _all_used(runs[many[-1]])


def _id(kind: str, runs: Directions) -> str:
    return f"planted-{kind}-w{runs.width}-c{runs.classes}"


def _ends(runs: Directions) -> tuple[Estimate, Estimate]:
    """The least and the largest cosine, the one further from zero first."""
    least, largest = (runs.value(f"raw.{end}", COSINE) for end in ("least", "largest"))
    far = abs(float(least.value or 0)) >= abs(float(largest.value or 0))
    return (least, largest) if far else (largest, least)


def _orthogonal(runs: Directions, id: str, where: str, said: str, note: str) -> Iterator[Claim]:
    """The typical pair, as at first sight, and all of them."""
    far, near = _ends(runs)
    yield Claim(
        id=id,
        text=f"{where}: {said} are orthogonal (mean |cosine| of different classes below {ORTHOGONAL})",
        estimate=runs.value("raw.mean_absolute", SHARE),
        bound=Bound.below(ORTHOGONAL),
        note=note,
        published=_MANY,
    )
    least, largest = (float(runs.array(f"raw.{name}").mean()) for name in ("least", "largest"))
    yield Claim(
        id=id.replace("orthogonal", "every-orthogonal"),
        text=f"{where}: … every pair of them (every cosine in ±{ORTHOGONAL})",
        estimate=far,
        also=[near],
        bound=WITHIN,
        note=f"cosines from {least:.2f} to {largest:.2f}",
        ours=True,
    )


def _simplex(runs: Directions) -> Claim:
    largest = runs.array("centred.largest")
    return Claim(
        id=_id("simplex", runs),
        text=f"width {runs.width}, {runs.classes} planted classes: centred directions form a simplex (largest cosine + "
        "1/(C−1))",
        estimate=mean_of(largest - runs.bound),
        bound=Bound.below(NEAR_SIMPLEX),
        note=f"largest cosine {float(largest.mean()):.2f}, simplex {runs.bound:.2f}",
        ours=True,
    )


def _enough(runs: Directions, how: str) -> Claim:
    return Claim(
        id=_id("accuracy", runs),
        text=f"width {runs.width}: accuracy stays above {ENOUGH} {how} 2(d − 1) = {2 * runs.room} classes "
        f"({runs.classes} planted classes)",
        estimate=runs.value("accuracy", SHARE),
        bound=Bound.above(ENOUGH),
        ours=True,
    )


def _all_used(runs: Directions) -> Claim:
    return Claim(
        id=_id("rank", runs),
        text=f"width {runs.width}, {runs.classes} planted classes: all directions are used (effective rank ≥ {USED} · "
        f"{runs.most})",
        estimate=runs.value("centred.effective_rank"),
        bound=Bound.above(USED * runs.most),
        ours=True,
    )


def _labelled(name: str, runs: Directions, printed: Mapping[str, Any]) -> Iterator[Claim]:
    cell = runs.runs.cells[0]
    where = f"{TITLES[name]} ({cell.value('classes')} classes, {cell.labels['vectors']})"
    yield Claim(
        id=f"labels-spearman-{name}",
        text=f"{where}: classes whose texts lie closer together are classified better (Spearman over classes)",
        estimate=runs.value("spearman", COSINE),
        bound=Bound.above(0),
        published=Published(printed["spearman"], printed["source"]),
        note="published: BERT on 20 Newsgroups",
    )
    mean, accuracy = (float(runs.array(path).mean()) for path in ("raw.mean", "accuracy"))
    note = f"mean cosine {mean:.2f}; accuracy {accuracy:.3f}"
    yield from _orthogonal(runs, f"labels-orthogonal-{name}", where, "class directions", note)
