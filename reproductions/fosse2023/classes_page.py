"""What many classes add to the page: directions, bounds, accuracy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from reproductions.fosse2023.bounds import least_largest_absolute_cosine, least_largest_cosine
from reproductions.fosse2023.classes import SETS
from reproductions.fosse2023.classes_cell import LEAST
from reproductions.fosse2023.classes_figures import accuracy_chart, cosine_chart
from reproductions.fosse2023.pretrained_reading import ORTHOGONAL, all_within, mean_of, over_seeds
from reproductions.frame.estimates import Estimate, estimate, verdict_above
from reproductions.frame.parts import Part
from reproductions.frame.record import Claim, Table, published

if TYPE_CHECKING:
    from reproductions.frame.record import Settings

ENOUGH = 0.95
"""Accuracy below which it has given way; fixed before anything was measured, as are the next two."""
NEAR_SIMPLEX = 0.1
USED = 0.8
TITLES = {
    "genres": "GUM genres of 48 words",
    "xpos": "EWT parts of speech (XPOS) of a marked word",
    "features": "EWT UPOS and features of a marked word",
    "lemmas": "the 500 most frequent lemmas of EWT, masked",
}


@dataclass(frozen=True)
class Found:
    """The finished runs: planted by (width, classes), real label sets by (set, vectors); a list over seeds each."""

    planted: Mapping[tuple[int, int], list[Any]]
    labelled: Mapping[tuple[str, str], list[Any]]

    @property
    def widths(self) -> list[int]:
        return sorted({width for width, _ in self.planted})

    def counts(self, width: int) -> list[int]:
        return sorted(classes for one, classes in self.planted if one == width)


def found_in(done: Mapping[str, Any]) -> Found:
    planted: dict[tuple[int, int], list[Any]] = {}
    labelled: dict[tuple[str, str], list[Any]] = {}
    for key, result in done.items():
        _, name, rest = key.split("-", 2)
        if name == "planted":
            width = int(rest.split("-")[0].removeprefix("width"))
            for classes, one in result.items():
                planted.setdefault((width, int(classes)), []).append(one)
        else:
            labelled.setdefault((name, rest.rsplit("-", 1)[0]), []).append(result)
    return Found(planted, labelled)


def page_part(settings: "Settings", done: Mapping[str, Any]) -> Part:
    """Everything that the finished cells say."""
    found = found_in(done)
    return Part(
        title="Many classes",
        setup=_setup(found),
        summary=list(_summary(found)),
        claims=[*_planted_claims(found), *_labelled_claims(found)],
        tables=list(_tables(found)),
        figures=[accuracy_chart(found), cosine_chart(found)] if found.planted else [],
        provenance={"classes": {"runs": len(done)}},
    )


def room(width: int) -> int:
    """Dimensions that states have: the norm takes away the mean of the components."""
    return width - 1


def bound(classes: int, width: int) -> float:
    """What the largest cosine of so many directions cannot go below in a model of this width."""
    return least_largest_cosine(classes, room(width))


def value(results: Sequence[Any], *path: str) -> Estimate:
    """The mean over seeds of a number in the results."""

    def at(one: Any) -> float | None:
        for name in path:
            one = one[name]
        return None if one is None else float(one)

    got = over_seeds(results, at)
    return got if got is not None else estimate([float("nan")])


def _setup(found: Found) -> list[str]:
    said = [
        "Model: pure attention (x ← norm(x + f(x)), one head, zero `<cls>`, classified from `<cls>`), Adam with a rate "
        "that falls to zero. Its norm takes the mean of the components away and makes all states equally long, so "
        "class directions live in d − 1 dimensions: bounds are for d − 1.",
        "Bounds on the largest cosine between C directions: −1/(C−1) for C ≤ d (a simplex), 0 up to 2(d−1) (Rankin), "
        "then the greater of Levenshtein's third bound and that of caps that do not overlap. Welch's bound, also "
        "given, is on |cos|: cosines with a sign can stay below it. *Centred*: the mean over classes is removed first.",
        f"Fixed beforehand: accuracy gives way below {ENOUGH}; directions are orthogonal if all |cos| ≤ {ORTHOGONAL}; "
        f"they form a simplex if the largest centred cosine is within {NEAR_SIMPLEX} of −1/(C−1); all directions are "
        f"used if the effective rank of the centred class means is at least {USED} of the most there can be.",
    ]
    if found.planted:
        said.append(
            "Planted: each class has 4 words of its own; a text has 12 words in random order, three of its class, one "
            "of another, eight that mean nothing. Counting is always right, texts are drawn anew for every step, so "
            "neither data nor ambiguity limits accuracy. One layer, 1,200 steps of 512 texts in the full run."
        )
    if found.labelled:
        said.append(
            "Real label sets, two layers, best of ten checks by validation loss: the genre of 48 consecutive words of "
            "GUM; XPOS, or UPOS with features, of a word of EWT, which stands after `<cls>` and before its eight "
            "neighbours on either side, nearest first; the lemma of a masked word among the 500 most frequent, from "
            f"its neighbours. Classes with fewer than {LEAST} test texts have no direction here."
        )
    return said


def _tables(found: Found) -> Iterator[Table]:
    if found.planted:
        rows = [_planted_row(found, w, c) for w in found.widths for c in found.counts(w)]
        note = "*bound*: the largest cosine cannot be less. *directions*: effective rank of the centred class means."
        yield Table("Planted classes: how directions lie, by width and number of classes", pd.DataFrame(rows), note)
    if found.labelled:
        rows = [
            _labelled_row(name, vectors, found.labelled[name, vectors])
            for name in SETS
            for vectors in _vectors(found, name)
        ]
        note = "*majority*: the accuracy of always saying the most frequent class. Spearman: over classes, of the mean "
        note += (
            "cosine with the own class's mean direction and accuracy. AUROC: own class against others, mean of classes."
        )
        yield Table("Real label sets", pd.DataFrame(rows), note)


def _vectors(found: Found, name: str) -> list[str]:
    return sorted((v for n, v in found.labelled if n == name), key=lambda v: (v.split("-")[0], int(v.split("-")[1])))


def _lie(results: Sequence[Any], classes: int, width: int) -> dict[str, Any]:
    return {
        "mean cosine": value(results, "raw", "mean").mean,
        "largest cosine": value(results, "raw", "largest").mean,
        "largest, centred": value(results, "centred", "largest").mean,
        "bound": bound(classes, width),
        "largest |cos|, centred": value(results, "centred", "largest_absolute").mean,
        "Welch": least_largest_absolute_cosine(classes, room(width)),
        "directions": value(results, "centred", "effective_rank").mean,
        "of at most": min(classes - 1, room(width)),
    }


def _planted_row(found: Found, width: int, classes: int) -> dict[str, Any]:
    results = found.planted[width, classes]
    right = value(results, "accuracy")
    row = {"width": width, "classes": classes, "accuracy": right.mean, "± sd": right.sd}
    return row | _lie(results, classes, width) | {"own cosine": value(results, "own_cosine").mean}


def _labelled_row(name: str, vectors: str, results: Sequence[Any]) -> dict[str, Any]:
    right, used = value(results, "accuracy"), results[0]["classes_used"]
    row: dict[str, Any] = {"labels": TITLES[name], "vectors": vectors, "classes": results[0]["classes"], "used": used}
    row |= {"accuracy": right.mean, "± sd": right.sd, "majority": results[0]["majority"]}
    row |= _lie(results, used, int(vectors.split("-")[1]))
    row |= {"own cosine": value(results, "own_cosine").mean, "AUROC": value(results, "auroc").mean}
    return row | {"Spearman": value(results, "spearman").mean}


def _planted_claims(found: Found) -> Iterator[Claim]:
    for width in found.widths:
        counts = found.counts(width)
        fits = [c for c in counts if c <= room(width)]
        within, beyond = [c for c in counts if c <= 2 * room(width)], [c for c in counts if c > 2 * room(width)]
        for classes in (c for c in fits if c in (2, 8, 64)):
            yield _orthogonal(found, width, classes)
            if classes > 2:  # two centred directions are opposite whatever they are
                yield _simplex(found, width, classes)
        if within:
            yield _enough(found, width, within[-1], "stays above {} up to 2(d − 1) classes")
        if beyond:
            yield _enough(found, width, beyond[-1], "stays above {} far beyond 2(d − 1) classes")
            yield _all_used(found, width, beyond[-1])


def _orthogonal(found: Found, width: int, classes: int) -> Claim:
    results = found.planted[width, classes]
    ends = [value(results, "raw", "least"), value(results, "raw", "largest")]
    far = max(ends, key=lambda one: abs(one.mean))
    return Claim(
        text=f"width {width}, {classes} planted classes: directions are orthogonal (every cosine in ±{ORTHOGONAL})",
        ours=far.mean,
        interval=far.interval,
        verdict=all_within(ends),
        why=f"cosines from {ends[0].mean:.2f} to {ends[1].mean:.2f}, mean {value(results, 'raw', 'mean').mean:.2f}",
    )


def _simplex(found: Found, width: int, classes: int) -> Claim:
    results = found.planted[width, classes]
    ideal = bound(classes, width)
    gap = over_seeds(results, lambda one: one["centred"]["largest"] - ideal)
    assert gap is not None
    high = gap.interval and gap.interval[1] < NEAR_SIMPLEX
    low = gap.interval and gap.interval[0] > NEAR_SIMPLEX
    return Claim(
        text=f"width {width}, {classes} planted classes: centred directions form a simplex (largest cosine + 1/(C−1))",
        ours=gap.mean,
        interval=gap.interval,
        verdict="holds" if high else "does not hold" if low else "cannot tell",
        why=f"largest cosine {gap.mean + ideal:.2f}, simplex {ideal:.2f}",
    )


def _enough(found: Found, width: int, classes: int, what: str) -> Claim:
    right = value(found.planted[width, classes], "accuracy")
    return Claim(
        text=f"width {width}: accuracy {what.format(ENOUGH)} ({classes} planted classes)",
        ours=right.mean,
        interval=right.interval,
        verdict=verdict_above(right, ENOUGH),
    )


def _all_used(found: Found, width: int, classes: int) -> Claim:
    rank = value(found.planted[width, classes], "centred", "effective_rank")
    most = min(classes - 1, room(width))
    return Claim(
        text=f"width {width}, {classes} planted classes: all directions are used (effective rank ≥ {USED} · {most})",
        ours=rank.mean,
        interval=rank.interval,
        verdict=verdict_above(rank, USED * most),
    )


def _labelled_claims(found: Found) -> Iterator[Claim]:
    told = published("fosse2023_cones")["newsgroups"]
    for name in SETS:
        vectors = _vectors(found, name)
        if not vectors:
            continue
        results = found.labelled[name, vectors[0]]
        if len(results) < 2:
            continue
        where = f"{TITLES[name]} ({results[0]['classes']} classes, {vectors[0]})"
        ranked = over_seeds(results, lambda one: one["spearman"])
        if ranked is not None:
            yield Claim(
                text=f"{where}: classes whose texts lie closer together are classified better (Spearman over classes)",
                ours=ranked.mean,
                interval=ranked.interval,
                published=told["spearman"],
                verdict=verdict_above(ranked),
                why="published: BERT on 20 Newsgroups",
            )
        ends = [value(results, "raw", "least"), value(results, "raw", "largest")]
        far = max(ends, key=lambda one: abs(one.mean))
        yield Claim(
            text=f"{where}: class directions are orthogonal (every cosine in ±{ORTHOGONAL})",
            ours=far.mean,
            interval=far.interval,
            verdict=all_within(ends),
            why=f"mean cosine {value(results, 'raw', 'mean').mean:.2f}; accuracy {value(results, 'accuracy').mean:.3f}",
        )


def _summary(found: Found) -> Iterator[str]:
    if found.planted:
        last = {w: _last_enough(found, w) for w in found.widths}
        many = max(c for _, c in found.planted)
        held = ", ".join(f"{n if n else 'none of the numbers tried'} at width {w}" for w, n in last.items())
        yield (
            f"**Planted classes.** The largest number of classes at which accuracy is still at least {ENOUGH}: {held} "
            f"(the most tried: {many}). "
            + " ".join(_packed(found, width) for width in found.widths)
            + " Directions need not be orthogonal to be told apart: states lie on a sphere, where every point can be "
            "cut off by a plane."
        )
    if found.labelled:
        said = "**Real label sets.**"
        for name, vectors in product(SETS, dict.fromkeys(v for _, v in found.labelled)):
            if (name, vectors) in found.labelled:
                said += " " + _set_said(name, vectors, found.labelled[name, vectors])
        yield said


def _last_enough(found: Found, width: int) -> int | None:
    """The last number of classes before accuracy gives way for the first time."""
    last = None
    for classes in found.counts(width):
        if value(found.planted[width, classes], "accuracy").mean < ENOUGH:
            break
        last = classes
    return last


def _packed(found: Found, width: int) -> str:
    most = found.counts(width)[-1]
    results = found.planted[width, most]
    return (
        f"Width {width}, {most} classes: accuracy {value(results, 'accuracy').mean:.3f}, largest centred cosine "
        f"{value(results, 'centred', 'largest').mean:.2f} (bound {bound(most, width):.2f}), effective rank "
        f"{value(results, 'centred', 'effective_rank').mean:.1f} of {min(most - 1, room(width))}."
    )


def _set_said(name: str, vectors: str, results: Sequence[Any]) -> str:
    return (
        f"{TITLES[name]}, {vectors}: accuracy {mean_of(results, lambda one: one['accuracy']):.3f} "
        f"(majority {results[0]['majority']:.3f}), mean cosine between classes "
        f"{value(results, 'raw', 'mean').mean:.2f}, centred "
        f"{value(results, 'centred', 'mean').mean:.2f}, AUROC {value(results, 'auroc').mean:.2f}."
    )
