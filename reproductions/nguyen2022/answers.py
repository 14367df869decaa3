"""What the curves of Nguyen et al. 2022 say: claims with verdicts, and words."""

from collections.abc import Iterator
from itertools import product
from statistics import mean
from typing import Any

from reproductions.frame.estimates import Estimate, difference
from reproductions.frame.record import Claim
from reproductions.nguyen2022 import shape
from reproductions.nguyen2022.runs import Outcome

NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}
CLASSES = {"hatexplain": 3, "yelphat": 2, "esnli": 3}
_BARELY = 0.02  # of accuracy: "barely moves"
_CHANCE = 0.02  # above one in so many classes: nothing was learnt
_SHARPENED = 0.1  # of the entropy H: less, and the penalty cannot be said to have acted


def places(outcome: Outcome) -> list[tuple[str, str]]:
    return list(product(outcome.size.corpora, outcome.size.vectors))


def tested(outcome: Outcome, corpus: str, vectors: str, strength: float, measure: str) -> list[float]:
    """Accuracy or entropy on the test texts, one number for each seed."""
    return [float(one["metrics"]["test"][measure]) for one in outcome.of(corpus, vectors, strength)]


def claims(outcome: Outcome, told: Any) -> Iterator[Claim]:
    for corpus, vectors in places(outcome):
        for measure in shape.MEASURES:
            yield from _shape(outcome, told, corpus, vectors, measure)
        yield _accuracy(outcome, corpus, vectors)


def _shape(outcome: Outcome, told: Any, corpus: str, vectors: str, measure: str) -> Iterator[Claim]:
    where = (outcome, corpus, vectors)
    up, down = shape.rise(*where, measure), shape.fall(*where, measure)
    least, most = ", ".join(f"{s:g}" for s in shape.small(outcome)), max(outcome.size.strengths)
    level = mean(mean(shape.pooled(*where, s, measure)) for s in shape.small(outcome))
    ends = [mean(shape.pooled(*where, s, measure)) for s in (0.0, most)]
    public = _published(outcome, told, measure) if corpus == "esnli" else {}
    why = f"{ends[0]:.3f} → {level:.3f}"
    if (public.get("rise") or 0.0) > max(up.interval[1], 0.0):
        why += "; a rise as large as the published one lies outside the interval"
    name = f"{NAMES[corpus]}, {vectors}: pooled {measure.upper()}"
    yield Claim(
        text=f"{name} rises from λ = 0 to {least} (mean)",
        ours=up.value,
        interval=up.interval,
        published=public.get("rise"),
        verdict=("does not hold", "cannot tell", "holds")[up.sign + 1],
        why="; ".join([why, *_unsharpened(*where)]),
    )
    yield Claim(
        text=f"{name} falls from λ = {least} (mean) to {most:g}",
        ours=down.value,
        interval=down.interval,
        published=public.get("fall"),
        verdict=("holds", "cannot tell", "does not hold")[down.sign + 1],
        why="; ".join([f"{level:.3f} → {ends[1]:.3f}", *_collapsed(*where), *_unsharpened(*where)]),
    )


def _published(outcome: Outcome, told: Any, measure: str) -> dict[str, float | None]:
    """The same two differences in the printed numbers, as far as those go."""
    table = told["esnli"] if measure in told["esnli"] else told["esnli_thesis"]
    values = dict(zip(table["lambda"], table[measure], strict=True))
    level = mean(values[strength] for strength in shape.small(outcome))
    most = max(outcome.size.strengths)
    return {"rise": level - values[0.0], "fall": values[most] - level if most in values else None}


def _collapsed(outcome: Outcome, corpus: str, vectors: str) -> list[str]:
    """A remark, if the classifier at the largest λ has learnt nothing."""
    most = max(outcome.size.strengths)
    right = mean(tested(outcome, corpus, vectors, most, "accuracy"))
    if right > 1 / CLASSES[corpus] + _CHANCE:
        return []
    return [f"at λ = {most:g} the classifier has learnt nothing (accuracy {right:.3f} of {CLASSES[corpus]} classes)"]


def _unsharpened(outcome: Outcome, corpus: str, vectors: str) -> list[str]:
    """A remark, if the penalty did not make attention sharper."""
    most = max(outcome.size.strengths)
    first, last = (mean(tested(outcome, corpus, vectors, s, "entropy")) for s in (0.0, most))
    if first - last >= _SHARPENED:
        return []
    return [f"the penalty hardly sharpened attention (H {first:.2f} → {last:.2f}), so this does not test the claim"]


def accuracy_moves(outcome: Outcome, corpus: str, vectors: str) -> tuple[float, Estimate, str]:
    """The λ whose accuracy is furthest from that at λ = 0, the difference, and whether all stay near."""
    at_zero = tested(outcome, corpus, vectors, 0.0, "accuracy")
    moves = {
        s: difference(tested(outcome, corpus, vectors, s, "accuracy"), at_zero) for s in outcome.size.strengths if s > 0
    }
    furthest = max(moves, key=lambda strength: abs(moves[strength].mean))
    ranges = [move.interval for move in moves.values() if move.interval is not None]
    if len(ranges) == len(moves) and all(low > -_BARELY and high < _BARELY for low, high in ranges):
        verdict = "holds"
    elif any(low > _BARELY or high < -_BARELY for low, high in ranges):
        verdict = "does not hold"
    else:
        verdict = "cannot tell"
    return furthest, moves[furthest], verdict


def _accuracy(outcome: Outcome, corpus: str, vectors: str) -> Claim:
    strength, move, verdict = accuracy_moves(outcome, corpus, vectors)
    return Claim(
        text=f"{NAMES[corpus]}, {vectors}: accuracy moves by less than {_BARELY} from λ = 0 at every λ",
        ours=move.mean,
        interval=move.interval,
        verdict=verdict,
        why=f"largest at λ = {strength:g}; “holds” needs the interval over seeds of every λ within ±{_BARELY}",
    )


def summary(outcome: Outcome, told: Any) -> list[str]:
    return [
        f"**The published shape**: {told['shape']['text'].replace('lambda', 'λ')}.",
        _overall(outcome, told),
        *(_place(outcome, corpus, vectors) for corpus, vectors in places(outcome)),
        "A map that agrees with people's marks is plausible; that says nothing of whether the model used those words.",
    ]


def _overall(outcome: Outcome, told: Any) -> str:
    names: dict[str, list[str]] = {"holds": [], "does not hold": [], "cannot tell": []}
    alone: dict[str, list[str]] = {"rise": [], "fall": []}
    outside = []
    for corpus, vectors in places(outcome):
        where, name = (outcome, corpus, vectors), f"{NAMES[corpus]}, {vectors}"
        up, down = shape.rise(*where, "auprc"), shape.fall(*where, "auprc")
        names[shape.verdict(up, down)].append(name)
        idle = [f"{name} (where the penalty hardly acted)" if _unsharpened(*where) else name]
        alone["rise"] += idle if up.sign > 0 else []
        alone["fall"] += ([f"{name} (to a classifier at chance)"] if _collapsed(*where) else idle) * (down.sign < 0)
        if corpus == "esnli" and shape.rise(*where, "auroc").interval[1] < (
            _published(outcome, told, "auroc")["rise"] or 0
        ):
            outside.append(vectors)
    counts = ", ".join(f"“{verdict}” in {len(found)}" for verdict, found in names.items())
    said = f"**Ours, pooled AUPRC, {len(places(outcome))} pairs of corpus and vectors.** Peak, then fall: {counts}."
    for step, found in alone.items():
        said += f" The {step} alone has an interval without zero in: {'; '.join(found) or 'none'}."
    if outside:
        right = {vectors: mean(tested(outcome, "esnli", vectors, 0.0, "accuracy")) for vectors in outside}
        said += (
            f" On e-SNLI ({', '.join(outside)}) our intervals leave no room for a rise of AUROC as large as the "
            "published one; but our classifiers there are weak: at λ = 0 the accuracy is "
            f"{', '.join(f'{each:.3f}' for each in right.values())}, published {told['esnli']['accuracy'][0]:.3f}."
        )
    return said


def _place(outcome: Outcome, corpus: str, vectors: str) -> str:
    where = (outcome, corpus, vectors)
    areas = {s: mean(shape.pooled(*where, s, "auprc")) for s in outcome.size.strengths}
    best, most = max(areas, key=lambda strength: areas[strength]), max(areas)
    verdict = shape.verdict(shape.rise(*where, "auprc"), shape.fall(*where, "auprc"))
    sharp = [mean(tested(*where, s, "entropy")) for s in (0.0, most)]
    strength, move, _ = accuracy_moves(*where)
    top = "there" if best == 0 else f"at λ = {best:g} ({areas[best]:.3f})"
    said = (
        f"**{NAMES[corpus]}, {vectors}.** Peak, then fall: {verdict}. The pooled AUPRC is {areas[0.0]:.3f} at λ = 0, "
        f"highest {top}, and {areas[most]:.3f} at {most:g}; the entropy H goes from {sharp[0]:.2f} to {sharp[1]:.2f}; "
        f"the accuracy moves by at most {abs(move.mean):.3f} (at λ = {strength:g})."
    )
    remarks = [*_collapsed(*where), *_unsharpened(*where)]
    return said + "".join(f" {remark[0].upper()}{remark[1:]}." for remark in remarks)
