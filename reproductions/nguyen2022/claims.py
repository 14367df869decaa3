"""What the curves of Nguyen et al. 2022 say: a rise, a fall, and an accuracy that hardly moves."""

from collections.abc import Iterator
from statistics import mean
from typing import Any

from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import mean_of, paired
from reproductions.nguyen2022.curves import MEASURES, NAMES, Curves

_BARELY = 0.02  # of accuracy: "barely moves"
_SHARP = 0.1  # of H: published .02 on YelpHat at λ = 1
_NEAR = 0.1  # of λ: .9 is printed where ours is 1
_SHAPE = Published("plausibility peaks at small λ, then falls, while accuracy barely moves", "abstract, e-SNLI")


def claims(cells: Finished) -> list[Claim]:
    curves, printed = Curves(cells), published("nguyen2022")
    every: list[Claim] = []
    for place in curves.places:
        for measure in MEASURES:
            every += _shape(curves, place, measure, _published(curves, printed, place[0], measure))
        every += _fall_from_none(curves, place, printed)
        every.append(_accuracy(curves, place))
        every += _strong(curves, place, printed)
    return every


def _strong(curves: Curves, place: tuple[str, str], printed: Any) -> Iterator[Claim]:
    """The strongest penalty. Predicted before any run: it sharpens attention everywhere, and plausibility falls."""
    corpus, vectors = place
    if (strength := curves.strongest(place)) is None:
        return
    table = printed.get(corpus, {})
    near = min(table["lambda"], key=lambda one: abs(one - strength))
    far = abs(near - strength) > _NEAR
    values = {m: dict(zip(table["lambda"], table.get(m, []), strict=False)) for m in ("auprc", "entropy")}

    def told(measure: str, first: float | None = 0.0) -> Published | None:
        level, start = values[measure].get(near), 0.0 if first is None else values[measure].get(first)
        return None if far or level is None or start is None else Published(level - start, _at(table, near))

    name = f"{NAMES[corpus]}, {vectors}"
    entropy = curves.tested(place, "entropy").sel(strength=strength)
    sharp = told("entropy", None)
    yield Claim(
        id=f"{corpus}-{vectors}-strong-sharpens",
        text=f"{name}: a penalty of λ = {strength:g} makes attention sharp (H below {_SHARP})",
        estimate=mean_of(entropy),
        bound=Bound.below(_SHARP),
        published=sharp,
        ours=sharp is None,
        note=f"H {float(curves.tested(place, 'entropy')[0].mean()):.2f} at λ = 0",
    )
    pooled, fall = curves.pooled(place, "auprc").mean("seed"), told("auprc")
    dead = curves.at_chance(place, strength)
    lost = f"{dead} of {entropy.size} seeds at λ = {strength:g} are at chance" if dead else ""
    idle = "the penalty hardly sharpened attention" if curves.unsharpened(place, strength) else ""
    yield Claim(
        id=f"{corpus}-{vectors}-strong-falls",
        text=f"{name}: pooled AUPRC falls from λ = 0 to {strength:g}",
        estimate=curves.strong_step(place, "auprc", strength),
        bound=Bound.below(0.0),
        published=fall,
        ours=fall is None,
        undecided=lost or idle,
        note=f"{float(pooled[0]):.3f} → {float(pooled.sel(strength=strength)):.3f}",
    )


def _at(table: Any, strength: float) -> str:
    return f"{table['source']}; λ = {strength:g}"


def _shape(curves: Curves, place: tuple[str, str], measure: str, printed: dict[str, Published]) -> Iterator[Claim]:
    corpus, vectors = place
    pooled = curves.pooled(place, measure).mean("seed")
    start, end = float(pooled[0]), float(pooled.sel(strength=curves.largest))
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
            note=f"{float(pooled[0]):.3f} → {float(pooled.sel(strength=curves.largest)):.3f}; published "
            f"{values[0.0]:.3f} → {values[curves.largest]:.3f}",
        )


def _accuracy(curves: Curves, place: tuple[str, str]) -> Claim:
    """All λ must stay near; the one that is furthest is shown."""
    accuracy = curves.tested(place, "accuracy")
    tabled = [s for s in curves.strengths if 0 < s <= curves.largest]
    moves = {s: paired(accuracy.sel(strength=s), accuracy[0], "seeds") for s in tabled}
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
