"""Does plausibility peak at a small λ and then fall? Differences with intervals over texts and seeds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from reproductions.nguyen2022.runs import Outcome

SMALL = (0.01, 0.02)
"""Where the paper has its peak; taken together, so that no maximum is chosen after the fact."""
MEASURES = ("auprc", "auroc")


@dataclass(frozen=True)
class Step:
    """A difference of pooled plausibility, with the 95 % interval of a bootstrap over test texts and seeds."""

    value: float
    interval: tuple[float, float]

    @property
    def sign(self) -> int:
        low, high = self.interval
        return 1 if low > 0 else -1 if high < 0 else 0


def pooled(outcome: Outcome, corpus: str, vectors: str, strength: float, measure: str) -> list[float]:
    """One number for each seed."""
    found = outcome.of(corpus, vectors, strength)
    return [float(one["plausibility"]["all"]["pooled"][measure]) for one in found]


def draws(outcome: Outcome, corpus: str, vectors: str, strength: float, measure: str) -> list[list[float]]:
    """For each seed, the draws over texts; the same texts in the same draw of every model."""
    found = outcome.of(corpus, vectors, strength)
    return [[float(x) for x in one["plausibility"]["all"]["draws"][measure]] for one in found]


def small(outcome: Outcome) -> tuple[float, ...]:
    return tuple(strength for strength in SMALL if strength in outcome.size.strengths)


def rise(outcome: Outcome, corpus: str, vectors: str, measure: str) -> Step:
    """Small λ less λ = 0."""
    return _step(outcome, corpus, vectors, measure, small(outcome), (0.0,))


def fall(outcome: Outcome, corpus: str, vectors: str, measure: str) -> Step:
    """The largest λ less small λ."""
    return _step(outcome, corpus, vectors, measure, (max(outcome.size.strengths),), small(outcome))


def _step(
    outcome: Outcome, corpus: str, vectors: str, measure: str, first: Sequence[float], second: Sequence[float]
) -> Step:
    where = (outcome, corpus, vectors)
    value = mean(mean(pooled(*where, s, measure)) for s in first)
    value -= mean(mean(pooled(*where, s, measure)) for s in second)
    drawn: dict[float, Any] = {s: draws(*where, s, measure) for s in (*first, *second)}
    dice = random.Random(0)
    seeds = range(len(outcome.seeds))
    found = []
    for number in range(len(next(iter(drawn.values()))[0])):
        for _ in range(5):  # the seeds are drawn anew for each model: their runs have nothing in common

            def one(strengths: Sequence[float], number: int = number) -> float:
                return mean(mean(drawn[s][dice.choice(seeds)][number] for _ in seeds) for s in strengths)

            found.append(one(first) - one(second))
    found.sort()
    return Step(value, (found[round(0.025 * (len(found) - 1))], found[round(0.975 * (len(found) - 1))]))


def verdict(up: Step, down: Step) -> str:
    """Holds if it rises and then falls; does not if one of the two goes the other way; else there is too little."""
    if up.sign > 0 and down.sign < 0:
        return "holds"
    if up.sign < 0 or down.sign > 0:
        return "does not hold"
    return "cannot tell"
