"""Claims about runs of which some may have learnt nothing: judged with them and without them."""

from typing import Any

import numpy as np

from reproductions.frame import markdown
from reproductions.frame.claims import Bound, Claim, Published, disagreement
from reproductions.frame.statistics import mean_of


def with_and_without(
    values: Any, learnt: Any, *, bound: Bound, note: str = "", published: Published | None, **about: Any
) -> Claim:
    """A claim about a number of each seed: all of them, and those alone that learnt something, must say the same."""
    known = np.asarray(values, dtype=float)
    every, rest = mean_of(known), mean_of(known[np.asarray(learnt, dtype=bool)])
    lost = len(known) - int(np.sum(learnt))
    said = f"{lost} of {len(known)} seeds at chance, without them {markdown.estimate(rest)}" if lost else ""
    return Claim(
        estimate=every,
        also=[rest] if lost else [],
        bound=bound,
        undecided=disagreement(bound, every, rest) if lost else "",
        published=published,
        ours=published is None,
        note="; ".join(part for part in (note, said) if part),
        **about,
    )
