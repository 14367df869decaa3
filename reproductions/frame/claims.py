"""A claim: a sentence that can be wrong, our estimate, the bound that decides, and what was printed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lorgnette.statistics import estimate
from lorgnette.statistics.estimate import LEVEL

HOLDS, FAILS, OPEN, NOT_JUDGED = "holds", "does not hold", "cannot tell", "not judged"
NOT_IDENTIFIED = "not identified"
VERDICTS = (HOLDS, FAILS, OPEN, NOT_IDENTIFIED, NOT_JUDGED)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number, its 95 % interval, and what that is over: `n` seeds, blocks or texts, by which `method`.

    Without an interval (one run) nothing is decided, unless the bound is about the value itself, or an exact test
    says how often chance alone would be as far from zero (`p`, two-sided).
    """

    value: float | int | str | None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    n: int | None = None
    over: str = ""
    method: str = ""
    p: float | None = None

    @classmethod
    def of(cls, measured: estimate.Estimate, over: str, method: str = "t", n: int | None = None) -> "Estimate":
        """A number of the library, with its interval."""
        low, high = measured.interval
        return cls(value=float(measured.value), low=low, high=high, n=n, over=over, method=method)

    @classmethod
    def of_many(cls, value: float, se: float, over: str, method: str = "normal") -> "Estimate":
        """A number of which no cell keeps the count of what it is over, which is large: there t is normal."""
        return cls.of(estimate.Estimate(value, se, math.inf), over, method)

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    def __str__(self) -> str:
        """Mean and deviation over runs, as tables say it."""
        if not isinstance(self.value, float):
            return str(self.value)
        return f"{self.value:.3f}" if self.sd is None else f"{self.value:.3f} ± {self.sd:.3f}"

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


@dataclass(frozen=True)
class Bound:
    """Where the claim says that the number lies: above `low`, below `high`, or between them.

    It is decided by the whole interval, or, with `of_value`, by the value alone: for an aim about these runs.
    """

    low: float | None = None
    high: float | None = None
    of_value: bool = False

    @staticmethod
    def above(low: float) -> "Bound":
        return Bound(low=low)

    @staticmethod
    def below(high: float) -> "Bound":
        return Bound(high=high)

    @staticmethod
    def within(low: float, high: float) -> "Bound":
        return Bound(low, high)

    @staticmethod
    def at_least(low: float) -> "Bound":
        """The value itself, equality included."""
        return Bound(low=low, of_value=True)

    def verdict(self, estimate: Estimate) -> str:
        """Holds if all of the interval lies where the claim says, fails if none of it does."""
        if self.of_value:
            assert isinstance(estimate.value, int | float)
            inside = (self.low is None or estimate.value >= self.low) and (
                self.high is None or estimate.value <= self.high
            )
            return HOLDS if inside else FAILS
        if estimate.p is not None:
            return self._tested(estimate)
        if estimate.low is None or estimate.high is None:
            return OPEN
        least = float("-inf") if self.low is None else self.low
        most = float("inf") if self.high is None else self.high
        if estimate.low > least and estimate.high < most:
            return HOLDS
        return FAILS if estimate.high < least or estimate.low > most else OPEN

    def _tested(self, estimate: Estimate) -> str:
        """By an exact test against zero, which must be the one end of the bound."""
        if {self.low, self.high} != {0, None} or not isinstance(estimate.value, int | float):
            raise ValueError(f"an exact test is against zero, not {self}")
        assert estimate.p is not None
        if estimate.p >= LEVEL or estimate.value == 0:
            return OPEN
        return HOLDS if (estimate.value > 0) == (self.low is not None) else FAILS

    @property
    def opposite(self) -> "Bound":
        """The other side of a single end."""
        if (self.low is None) == (self.high is None):
            raise ValueError(f"{self} has no other side")
        return Bound(self.high, self.low, self.of_value)

    def admits(self, value: float) -> bool:
        """Whether a number lies where the claim says, its ends included."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        sides = [
            f"{sign} {end:g}"
            for sign, end in (("≥" if self.of_value else ">", self.low), ("<", self.high))
            if end is not None
        ]
        return " and ".join(sides) + (", by the value itself" if self.of_value else "")

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}


@dataclass(frozen=True)
class Published:
    """What was printed: a number with its own spread, or a few words where no number is; `source` says where."""

    value: float | int | str
    source: str = ""
    spread: float | None = None

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`id` is short and stable, by it a page picks the claim; `bound=None` is a number that is shown and not judged.

    `also` are further estimates for which the same bound must hold (every λ, every corpus): the claim holds if it does
    for all, and fails if it does for one. `undecided` says why nothing is decided whatever the interval: runs that were
    not trained alike. `overturned` is set by `frame.chance`: what its own interval says, but not after correction for
    all tests of the study. `ours=True` marks a claim that the source does not make; every other has `published`.
    `identified=False` marks a number that could be any other with weights that compute the same: a level of SIM of keys
    or values, which moves with a constant that is free. Our runs may agree with a paper's on it; it decides nothing.
    `opposed` is set by `as_printed`: the printed number contradicts the sentence, and its opposite is what is tested.
    """

    id: str
    text: str
    estimate: Estimate
    bound: Bound | None
    published: Published | None = None
    note: str = ""
    also: Sequence[Estimate] = ()
    ours: bool = False
    undecided: str = ""
    overturned: str = ""
    opposed: bool = False
    identified: bool = True

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return NOT_JUDGED
        if not self.identified:
            return NOT_IDENTIFIED
        if self.undecided or self.overturned:
            return OPEN
        verdicts = {self.bound.verdict(estimate) for estimate in (self.estimate, *self.also)}
        return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS

    def record(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "id": self.id,
            "text": self.text,
            "estimate": self.estimate.record(),
            "also": [estimate.record() for estimate in self.also],
            "bound": None if self.bound is None else self.bound.record(),
            "published": None if self.published is None else self.published.record(),
            "ours": self.ours,
            "verdict": self.verdict,
            "note": self.note,
            **({"undecided": self.undecided} if self.undecided else {}),
            **({"overturned": self.overturned} if self.overturned else {}),
            **({"opposed": True} if self.opposed else {}),
        }


def as_printed(claim: Claim) -> Claim:
    """The claim, or its opposite where the source's own number lies on the other side of its sentence.

    A source that says "it rises" and prints a fall in one row of its table does not claim a rise there: whoever
    measures a fall agrees with it. So the number that was printed says which side is tested.
    """
    printed, bound = claim.published, claim.bound
    if printed is None or not isinstance(printed.value, int | float) or bound is None:
        return claim
    if (bound.low is None) == (bound.high is None) or bound.admits(printed.value):
        return claim
    return replace(claim, text=f"as printed, the opposite of “{claim.text}”", bound=bound.opposite, opposed=True)


def disagreement(bound: Bound, every: Estimate, rest: Estimate) -> str:
    """Why a claim is undecided that would be judged otherwise without the runs at chance; "" where both agree."""
    verdicts = [bound.verdict(one) for one in (every, rest)]
    return "" if verdicts[0] == verdicts[1] else f"{verdicts[0]} with the runs at chance, {verdicts[1]} without"


def counted(claims: Sequence[Claim]) -> dict[str, int]:
    """How many claims have each verdict, in the order of VERDICTS, without those that none has."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
    return {verdict: count for verdict, count in counts.items() if count}
