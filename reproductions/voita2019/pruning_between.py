"""Two curves of BLEU by heads, compared where they have the same number of heads."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from reproductions.frame.record import Claim
from reproductions.voita2019.pruning_reading import LONGER, NAMES, Outcome, Point, above, change, draws_of


def bleu_at(points: Sequence[Point], heads: int) -> float:
    """The BLEU of a curve at a number of heads, on the line between its neighbours."""
    ordered = sorted(points, key=lambda point: point.left)
    return float(np.interp(heads, [p.left for p in ordered], [p.bleu() for p in ordered]))


def draws_at(points: Sequence[Point], heads: int) -> Float[np.ndarray, " draw"]:
    """The same of every draw of sentences; the draws are the same for all models."""
    ordered = sorted(points, key=lambda point: point.left)
    columns = np.array([draws_of(point.result) for point in ordered]).T
    return np.array([np.interp(heads, [p.left for p in ordered], column) for column in columns])


def scratch(outcome: Outcome, told: Any) -> Iterator[Claim]:
    """Where the trained curve reaches the number of heads of a run from scratch: the line between its neighbours."""
    trained = [point for point in outcome.curve("small-all") if point.strength is not None]
    there = _reached(outcome.gated("small-scratch"), trained)
    if not there:
        return
    apart = [draws_at(trained, point.left) - draws_of(point.result) for point in there]
    values = [bleu_at(trained, point.left) - point.bleu() for point in there]
    table = told["pruning"]["wmt"]
    public = float(np.mean([a - b for a, b in zip(table["trained"][1:], table["scratch"][1:], strict=True)]))
    steps = [int(some[-1].result["fitted"]["steps"]) for some in (outcome.gated("small-all"), there)]
    yield _claim(
        "marian-small: at the same number of heads, pruning a trained model is better than training with gates",
        values,
        apart,
        round(public, 2),
        f"BLEU, trained (between its two nearest points) less scratch, mean over {_listed(there)} heads; interval over "
        f"sentences, one run each. On unequal terms: {steps[0]:,} steps with gates on the trained model, {steps[1]:,} "
        "from scratch",
        equal=steps[0] >= steps[1],
    )


def longer(outcome: Outcome, name: str) -> Iterator[Claim]:
    """What more epochs with gates do to the loss, each curve against its own model without gates."""
    usual = [point for point in outcome.curve(name) if point.strength is not None]
    whole = [point for point in outcome.curve(name + LONGER) if point.strength == 0]
    there = _reached(outcome.gated(name + LONGER), usual)
    if not there or not whole:
        return
    values, apart = [], []
    for point in there:
        before = bleu_at(usual, point.left) - usual[0].bleu()
        values.append(change(point, whole[0]).value - before)
        lost = draws_at(usual, point.left) - draws_of(usual[0].result)
        apart.append(draws_of(point.result) - draws_of(whole[0].result) - lost)
    yield _claim(
        f"{NAMES[name]}: at the same number of heads, less is lost if gates and weights are trained longer",
        values,
        apart,
        None,
        f"BLEU, mean over {_listed(there)} heads, against the line between the two nearest points of the shorter "
        "training; interval over sentences, one run each",
    )


def _claim(
    text: str, values: list[float], apart: list[np.ndarray], public: float | None, why: str, *, equal: bool = True
) -> Claim:
    """`equal`: whether the two were trained alike, without which there is no verdict."""
    low, high = (float(x) for x in np.quantile(np.mean(apart, axis=0), [0.025, 0.975]))
    ours, verdict = float(np.mean(values)), above((low, high)) if equal else "cannot tell"
    return Claim(text=text, ours=ours, interval=(low, high), published=public, verdict=verdict, why=why)


def _reached(some: Sequence[Point], curve: Sequence[Point]) -> list[Point]:
    """Those whose number of heads lies within the curve."""
    ends = [point.left for point in curve]
    return [point for point in some if len(ends) > 1 and min(ends) <= point.left <= max(ends)]


def _listed(points: Sequence[Point]) -> str:
    return ", ".join(str(point.left) for point in points)
