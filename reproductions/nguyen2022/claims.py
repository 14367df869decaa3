"""What the curves of Nguyen et al. 2022 say: a rise, a fall, and an accuracy that hardly moves."""

from collections.abc import Iterator
from statistics import mean
from typing import Any

from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import difference
from reproductions.nguyen2022.curves import MEASURES, NAMES, Curves

_BARELY = 0.02  # of accuracy: "barely moves"
_SHAPE = Published("plausibility peaks at small λ, then falls, while accuracy barely moves", "abstract, e-SNLI")


def claims(cells: Finished) -> list[Claim]:
    curves, printed = Curves(cells), published("nguyen2022")
    every: list[Claim] = []
    for place in curves.places:
        for measure in MEASURES:
            every += _shape(curves, place, measure, _published(curves, printed, place[0], measure))
        every += _fall_from_none(curves, place, printed)
        every.append(_accuracy(curves, place))
    return every


def _shape(curves: Curves, place: tuple[str, str], measure: str, printed: dict[str, Published]) -> Iterator[Claim]:
    corpus, vectors = place
    pooled = curves.pooled(place, measure).mean("seed")
    start, end = float(pooled[0]), float(pooled[-1])
    level = float(pooled.sel(strength=list(curves.small)).mean())
    least = ", ".join(f"{s:g}" for s in curves.small)
    name = f"{NAMES[corpus]}, {vectors}: pooled {measure.upper()}"
    rise, fall = curves.rise(place, measure), curves.fall(place, measure)
    idle = (
        "the penalty hardly sharpened attention, so this does not test the claim" if curves.unsharpened(place) else ""
    )
    # Of a rise that is smaller than its own spread nothing can lie outside.
    beyond = "rise" in printed and printed["rise"].value - (printed["rise"].spread or 0.0) > max(rise.high or 0.0, 0.0)
    outside = ["a rise as large as the published one lies outside the interval"] * beyond
    lost = f"at λ = {curves.largest:g} the classifier has learnt nothing" if curves.collapsed(place) else ""
    yield Claim(
        id=f"{corpus}-{vectors}-{measure}-rises",
        text=f"{name} rises from λ = 0 to {least} (mean)",
        estimate=rise,
        bound=Bound.above(0.0),
        published=printed.get("rise"),
        ours=corpus != "esnli",
        undecided=idle,
        note="; ".join([f"{start:.3f} → {level:.3f}", *outside]),
    )
    yield Claim(
        id=f"{corpus}-{vectors}-{measure}-falls",
        text=f"{name} falls from λ = {least} (mean) to {curves.largest:g}",
        estimate=fall,
        bound=Bound.below(0.0),
        published=printed.get("fall") or (_SHAPE if corpus == "esnli" else None),
        ours=corpus != "esnli",
        undecided=lost or idle,
        note=f"{level:.3f} → {end:.3f}",
    )


def _published(curves: Curves, printed: Any, corpus: str, measure: str) -> dict[str, Published]:
    """The same two differences in the numbers printed for e-SNLI, as far as those go."""
    if corpus != "esnli":
        return {}
    table = printed["esnli"] if measure in printed["esnli"] else printed["esnli_thesis"]
    values = dict(zip(table["lambda"], table[measure], strict=True))
    level = mean(values[strength] for strength in curves.small)
    spread = table.get("spread", {}).get(measure)  # of the value at λ = 0
    steps = {"rise": Published(level - values[0.0], table["source"], spread)}
    if curves.largest in values:
        steps["fall"] = Published(values[curves.largest] - level, table["source"])
    return steps


def _fall_from_none(curves: Curves, place: tuple[str, str], printed: Any) -> Iterator[Claim]:
    """Where the same two λ are printed: the whole step from no penalty to the largest."""
    corpus, vectors = place
    table = printed.get(corpus, {})
    for measure in MEASURES:
        values = dict(zip(table.get("lambda", []), table.get(measure, []), strict=False))
        if corpus == "esnli" or values.get(0.0) is None or values.get(curves.largest) is None:
            continue
        pooled = curves.pooled(place, measure).mean("seed")
        yield Claim(
            id=f"{corpus}-{vectors}-{measure}-falls-from-none",
            text=f"{NAMES[corpus]}, {vectors}: pooled {measure.upper()} falls from λ = 0 to {curves.largest:g}",
            estimate=curves.whole_step(place, measure),
            bound=Bound.below(0.0),
            published=Published(values[curves.largest] - values[0.0], table["source"]),
            note=f"{float(pooled[0]):.3f} → {float(pooled[-1]):.3f}; published {values[0.0]:.3f} → "
            f"{values[curves.largest]:.3f}",
        )


def _accuracy(curves: Curves, place: tuple[str, str]) -> Claim:
    """All λ must stay near; the one that is furthest is shown."""
    accuracy = curves.tested(place, "accuracy")
    moves = {s: difference(accuracy.sel(strength=s), accuracy[0]) for s in curves.strengths if s > 0}
    furthest = max(moves, key=lambda strength: abs(moves[strength].value))
    return Claim(
        id=f"{place[0]}-{place[1]}-accuracy-steady",
        text=f"{NAMES[place[0]]}, {place[1]}: accuracy changes by less than {_BARELY} from λ = 0 at every λ",
        estimate=moves[furthest],
        bound=Bound.within(-_BARELY, _BARELY),
        published=_SHAPE if place[0] == "esnli" else None,
        ours=place[0] != "esnli",
        also=[move for strength, move in moves.items() if strength != furthest],
        note=f"largest at λ = {furthest:g}; the interval of every λ must lie within ±{_BARELY}",
    )
