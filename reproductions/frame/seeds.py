"""Claims about runs of which some may have learnt nothing: judged with them and without them."""

from typing import Any

import numpy as np
from jaxtyping import Bool

from reproductions.frame import markdown
from reproductions.frame.claims import Bound, Claim, Published, disagreement
from reproductions.frame.statistics import FEWEST, mean_of

MAJORITY = {"hatexplain": 782 / 1924, "yelphat": 463 / 920, "esnli": 3368 / 9824}
"""The share of the largest class among the test texts: the accuracy of a model that always predicts it."""
ABOVE = 0.02
"""A run whose accuracy is no more than this above the largest class has learnt nothing."""


def learnt(accuracy: Any, corpus: str) -> Bool[np.ndarray, "..."]:
    """Whether each run does better on the test texts than always predicting the largest class, by more than .02."""
    return np.asarray(np.asarray(accuracy, dtype=float) > MAJORITY[corpus] + ABOVE)


def with_and_without(
    values: Any,
    learnt: Any,
    *,
    bound: Bound,
    note: str = "",
    published: Published | None,
    ends: tuple[float, float] | None = None,
    **about: Any,
) -> Claim:
    """A claim about a number of each seed: all of them, and those alone that learnt something, must say the same.

    Where runs are at chance, at least `FEWEST` others must be left: two say too little.
    """
    known = np.asarray(values, dtype=float)
    every, rest = (mean_of(some, ends=ends) for some in (known, known[np.asarray(learnt, dtype=bool)]))
    lost = len(known) - int(np.sum(learnt))
    few = f"too few seeds learnt anything: {len(known) - lost} of {len(known)}" if len(known) - lost < FEWEST else ""
    said = f"{lost} of {len(known)} seeds at chance, without them {markdown.estimate(rest)}" if lost else ""
    return Claim(
        estimate=every,
        also=[rest] if lost else [],
        bound=bound,
        undecided=(disagreement(bound, every, rest) or few) if lost else "",
        published=published,
        ours=published is None,
        note="; ".join(part for part in (note, said) if part),
        **about,
    )
