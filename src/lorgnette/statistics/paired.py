"""The difference of two means over the same texts: what a text does to both of them cancels, or adds up."""

import numpy as np
from jaxtyping import Float

Numbers = Float[np.ndarray, "text *cell"]


def paired_error(
    before: Numbers, before_weight: Numbers, after: Numbers, after_weight: Numbers
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """Standard error of M₂ − M₁, M = Σ w m / Σ w, and the number of texts it is over.

        r_t = w₂ (m₂ − M₂) / W₂ − w₁ (m₁ − M₁) / W₁        se² = n/(n−1) · Σ r_t²

    With equal weights this is the standard error of the mean of m₂ − m₁ (the paired t test), else the linearised one of
    two ratios. A text that one side does not have (weight 0) counts on the other alone. NaN below two texts. What it
    does not tell you: texts are taken to be independent of each other.
    """
    terms = [_term(np.nan_to_num(m), w) for m, w in ((before, before_weight), (after, after_weight))]
    count = ((before_weight > 0) | (after_weight > 0)).sum(0).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(count / (count - 1) * ((terms[1] - terms[0]) ** 2).sum(0))
    known = (count > 1) & (before_weight.sum(0) > 0) & (after_weight.sum(0) > 0)
    return np.where(known, error, np.nan), count


def _term(value: Numbers, weight: Numbers) -> Numbers:
    total = np.maximum(weight.sum(0), np.finfo(float).tiny)
    return weight * (value - (weight * value).sum(0) / total) / total
