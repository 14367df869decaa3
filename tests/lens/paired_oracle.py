"""Which of many means over the same texts differ: one pair at a time, from the numbers of every text, in float64."""

from itertools import combinations

import numpy as np
from scipy.stats import false_discovery_control, t


def residuals(values, weights):
    """What each text adds to the error of each column's mean, w (m − M) / W, and the means."""
    values, weights = np.nan_to_num(np.asarray(values, dtype=float)), np.asarray(weights, dtype=float)
    means = (values * weights).sum(0) / weights.sum(0)
    return means, weights * (values - means) / weights.sum(0)


def paired_q(values, weights=None, *, largest=True):
    """q of every column [text column] against the extreme one, all pairs corrected together; NaN for itself."""
    weights = np.ones_like(values) if weights is None else np.asarray(weights, dtype=float)
    means, terms = residuals(values, weights)
    counts = (weights > 0).sum(0)
    p = {}
    for a, b in combinations(range(len(means)), 2):
        n = min(counts[a], counts[b])
        error = np.sqrt(n / (n - 1) * ((terms[:, a] - terms[:, b]) ** 2).sum())
        p[a, b] = 2 * t.sf(abs(means[a] - means[b]) / error, n - 1)
    q = dict(zip(p, false_discovery_control(list(p.values())), strict=True))
    best = int(means.argmax() if largest else means.argmin())
    return [np.nan if n == best else q[min(n, best), max(n, best)] for n in range(len(means))]
