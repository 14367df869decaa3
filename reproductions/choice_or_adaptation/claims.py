"""What we expected before the runs; every number is of a seed, and the interval says what other seeds would give.

Known then, from the three seeds of heavy_lifting, which cut after T + G steps and trained 57 more: the gates' third of
the heads is .94 [−.09, 1.97] BLEU above random sets of the same layers, and 1.7 below the same heads from scratch.
"""

from collections.abc import Iterator, Mapping

from reproductions.choice_or_adaptation.readings import RANDOM, Readings
from reproductions.frame.claims import Bound, Claim
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of

NEAR = 0.5
"""BLEU: the half point by which the paper's pruned model is better than the one from scratch."""


def claims(cells: Finished) -> list[Claim]:
    return list(_claims(Readings(cells)))


def _claims(r: Readings) -> Iterator[Claim]:
    few, last = r.adapting[0], r.adapting[-1]
    gates, random = ("pruned", "gates"), ("pruned", RANDOM)
    yield _ours("chosen-at-once", f"after {few} steps, the heads that gates chose are better than random ones of the "
                "same layers (BLEU)", r.gap(gates, random, few), Bound.above(0))  # fmt: skip
    for choice, id, said in (
        ("gates", "chosen", "that gates chose"),
        ("gradient", "gradient", "with the largest gradient"),
        ("output_length", "length", "with the longest output"),
    ):
        yield _ours(
            f"{id}-at-last",
            f"after {last:,} steps, the heads {said} are no better and no worse than random ones of the same layers, "
            f"to within {NEAR} BLEU",
            r.gap(("pruned", choice), random, last),
            Bound.within(-NEAR, NEAR),
        )
    first, then = r.gap(gates, random, few), r.gap(gates, random, last)
    yield _ours(
        "chosen-shrinks",
        f"the advantage of the gates' heads over random ones shrinks from {few} steps to {last:,} (BLEU)",
        {seed: first[seed] - then[seed] for seed in first if seed in then},
        Bound.above(0),
    )
    for choice, id, said in (
        ("gates", "pruned-equals-scratch", "the heads that gates chose"),
        ("random0", "random-pruned-equals-scratch", "a random set of heads"),
    ):
        yield _ours(
            id,
            f"after {last:,} steps, {said}: pruned is as good as trained from scratch, to within {NEAR} BLEU",
            r.gap(("pruned", choice), ("scratch", choice), last),
            Bound.within(-NEAR, NEAR),
        )
    yield _ours(
        "chosen-from-scratch",
        f"from scratch, the heads that gates chose are as good as random ones of the same layers, to within {NEAR} "
        "BLEU",
        r.gap(("scratch", "gates"), ("scratch", "random0"), last),
        Bound.within(-NEAR, NEAR),
    )


def _ours(id: str, text: str, values: Mapping[int, float], bound: Bound) -> Claim:
    return Claim(id=id, text=text, estimate=mean_of(list(values.values())), bound=bound, ours=True)
