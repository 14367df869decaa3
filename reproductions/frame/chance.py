"""Many verdicts at once: the p value of each, and which stand after Benjamini and Hochberg (1995)."""

from collections.abc import Iterable
from dataclasses import replace

from lorgnette.statistics.estimate import CONFIDENCE
from reproductions.frame.claims import FAILS, HOLDS, OPEN, Bound, Claim, Estimate

LEVEL = 1 - CONFIDENCE
_COUNTED = "counted"
"""The method of an estimate that is a count of what there is, not a draw: chance has no part in it."""


def by_interval(claim: Claim) -> bool:
    """Whether an interval could decide it: not an aim about these runs, not a count, not what is left undecided."""
    estimates = (claim.estimate, *claim.also)
    return (
        claim.bound is not None
        and not claim.bound.of_value
        and not claim.undecided
        and claim.identified
        and all((one.interval is not None or one.p is not None) and one.method != _COUNTED for one in estimates)
    )


def p_value(claim: Claim) -> float:
    """Two-sided p of what decided the claim; 1 where nothing did.

    It belongs to the interval (p < .05 exactly where the 95 % interval excludes the bound): of Student's t for means
    and differences over runs, of the normal distribution for the other methods; an exact test has its own. A claim
    that needs several estimates has the largest p of theirs; one that fails by any has the smallest, times how many
    they are.
    """
    assert claim.bound is not None
    estimates = (claim.estimate, *claim.also)
    if claim.verdict == HOLDS:
        ends = [end for end in (claim.bound.low, claim.bound.high) if end is not None]
        return max(_beyond(one, end) for one in estimates for end in ends)
    if claim.verdict == FAILS:
        failed = [one for one in estimates if claim.bound.verdict(one) == FAILS]
        return min(1.0, len(estimates) * min(_beyond(one, _broken(one, claim.bound)) for one in failed))
    return 1.0


def corrected(claims: Iterable[Claim]) -> list[Claim]:
    """All claims of a study; those that are decided by their own interval, but not after the correction, are open."""
    from scipy.stats import false_discovery_control

    every = list(claims)
    family = [claim for claim in every if by_interval(claim)]
    adjusted = false_discovery_control([p_value(claim) for claim in family]) if family else []
    fallen = {claim.id for claim, p in zip(family, adjusted, strict=True) if p >= LEVEL and claim.verdict != OPEN}
    return [replace(claim, overturned=claim.verdict) if claim.id in fallen else claim for claim in every]


def _broken(one: Estimate, bound: Bound) -> float:
    """The end of the bound beyond which all of the interval lies."""
    if one.p is not None:
        return 0.0
    assert one.high is not None
    end = bound.low if bound.low is not None and one.high < bound.low else bound.high
    assert end is not None
    return end


def _beyond(one: Estimate, end: float) -> float:
    """p of the estimate against one end, from the half of its interval that faces it."""
    from scipy.stats import norm, t

    if one.p is not None:
        return one.p
    assert one.low is not None
    assert one.high is not None
    assert isinstance(one.value, int | float)
    half = one.value - one.low if end < one.value else one.high - one.value
    if half <= 0:  # no spread at all
        return 0.0
    freedom = {
        "t": (one.n or 2) - 1,
        "t, arcsine": (one.n or 2) - 1,
        "t, pooled": 2 * (one.n or 2) - 2,
        "Welch": (one.n or 2) - 1,
    }.get(one.method)
    law = norm if freedom is None else t(freedom)
    return float(2 * law.sf(abs(one.value - end) / half * law.ppf((1 + CONFIDENCE) / 2)))
