"""Which of many differences are significant: p-values, and their correction for a false discovery rate."""

import numpy as np
from jaxtyping import Float

LEVEL = 0.05
"""Share of false ones among the differences that are called significant."""


def two_sided_p(
    value: Float[np.ndarray, "*rest"],
    error: Float[np.ndarray, "*rest"],
    degrees: Float[np.ndarray, "*rest"] | None = None,
) -> Float[np.ndarray, "*rest"]:
    """p of value / error by the normal distribution, or Student's; 1 for no difference at all, NaN without an error."""
    from scipy.stats import norm, t

    value, error = np.asarray(value, dtype=float), np.asarray(error, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where((value == 0) & (error == 0), 0.0, np.abs(value / error))
    return np.asarray(2 * (norm.sf(z) if degrees is None else t.sf(z, degrees)))


def greater_p(
    value: Float[np.ndarray, "*rest"], error: Float[np.ndarray, "*rest"], degrees: Float[np.ndarray, "*rest"]
) -> Float[np.ndarray, "*rest"]:
    """One-sided p of value / error by Student's distribution: small for a value above zero, NaN without an error."""
    half = two_sided_p(value, error, degrees) / 2
    return np.where(np.asarray(value) > 0, half, 1 - half)


def false_discovery(p: Float[np.ndarray, "*rest"]) -> Float[np.ndarray, "*rest"]:
    """p adjusted so that of all below q a share q at most is expected to be false (Benjamini and Hochberg 1995).

    All of `p` are one family; NaN stay NaN and do not count.
    """
    from scipy.stats import false_discovery_control

    out, known = np.array(p, dtype=float), ~np.isnan(p)
    if known.any():
        out[known] = false_discovery_control(out[known])
    return out
